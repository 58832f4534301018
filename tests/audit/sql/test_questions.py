"""Queries over the log: each question of the page, and what archive and log hold together."""

import re
import shutil
from pathlib import Path

import pytest

from audit_kit import RecordedLog, small_log_in, write_again, written_archive
from bus_kit import power
from joulie_audit.access.kept_heads import public_key_in
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.parts import Archive
from joulie_audit.columns.tables import OF_FACTS, OF_LOG
from joulie_audit.sql import session
from joulie_audit.sql.energy_rows import energy_tables
from joulie_audit.sql.files import Files
from joulie_audit.sql.rows import Rows
from joulie_audit.sql.session import Limits
from joulie_audit.sql.views import NAMES, STORED, VERDICTS, VIEWS
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events import Fact
from joulie_extender.catalogue.rules import codes, few_words_of
from joulie_projections.energy.intervals import CardEnergy, Interval, NodeEnergy, PodEnergy

GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
QUESTIONS = [text for text in BLOCKS if "CREATE VIEW" not in text]
# The golden log has no pod that got another node than the best or none at all, and no cards.
MAY_BE_EMPTY = ("rank > 1", "card_readings", "bound_at IS NULL")
LIMITS = Limits(rows=1000, memory_mib=512, seconds=60)
HOUR_MS = 3_600_000
KWH = 3_600_000_000_000
INTERVAL = Interval(
    "hour",
    0,
    [NodeEnergy("n1", "plan-1", pods_uj=2 * KWH, idle_uj=KWH, modelled_uj=KWH)],
    (),
    [PodEnergy("u1", "team", "p1", "standard", "n1", pods_uj=2 * KWH, idle_uj=KWH)],
    (),
    [CardEnergy("n1", "GPU-1", pods_uj=KWH)],
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The golden log in Parquet."""
    place = tmp_path_factory.mktemp("sql") / "archive"
    return Archive.of(write_again(Archive.of(GOLDEN), place, public_key_in(GOLDEN / "head.pub")))


def asked(query: str, files: Files, place: Path) -> Rows:
    files.add({VERDICTS.name: VERDICTS.filled((code, few_words_of(code)) for code in codes())})
    return session.answered(query, files.by_table, place, LIMITS)


def asked_of(archive: Archive, query: str, place: Path) -> Rows:
    files = Files(session.tables_of(query), place)
    files.add_archive(archive)
    files.add(energy_tables([INTERVAL]))
    return asked(query, files, place)


def test_the_page_has_twenty_questions() -> None:
    assert len(QUESTIONS) >= 20


@pytest.mark.parametrize("query", QUESTIONS)
def test_each_question_of_the_page_has_an_answer(
    archive: Archive, query: str, tmp_path: Path
) -> None:
    found = asked_of(archive, query, tmp_path)

    assert found.columns
    assert found.rows or any(words in query for words in MAY_BE_EMPTY)


@pytest.mark.parametrize("name", [each.name for each in (*STORED, *VIEWS)])
def test_each_table_can_be_read_by_its_name(archive: Archive, name: str, tmp_path: Path) -> None:
    assert asked_of(archive, f"FROM {name}", tmp_path).columns


def test_a_score_has_the_node_that_had_the_row_then(archive: Archive, tmp_path: Path) -> None:
    """Answers of an extender that knew no node yet have candidates without rows."""
    known = "NOT list_contains(candidate_rows, -1) AND kind = 'prioritize'"
    query = f"""
        SELECT terms.node, decisions.score, list(scores.node), list(scores.score)
        FROM decisions JOIN terms USING (entry) JOIN scores USING (entry)
        WHERE {known} AND terms.place = 1 AND terms.term = 'score'
        GROUP BY decisions.entry, terms.node, decisions.score"""

    answers = asked_of(archive, query, tmp_path).rows

    assert answers
    assert all(
        dict(zip(nodes, scores, strict=True))[best] == score
        for best, score, nodes, scores in answers
    )


def test_refusals_have_the_words_of_explain(archive: Archive, tmp_path: Path) -> None:
    query = "SELECT DISTINCT reason FROM refusals"

    words = {reason for (reason,) in asked_of(archive, query, tmp_path).rows}

    assert words
    assert words <= {few_words_of(code) for code in codes()}


def test_energy_is_that_of_the_ledger(archive: Archive, tmp_path: Path) -> None:
    query = """
        SELECT energy.node, sum(energy.pods_kwh), sum(energy.idle_kwh), epoch_ms(max(ends_at)),
               (SELECT sum(pods_kwh + idle_kwh) FROM pod_energy),
               (SELECT max(card) FROM card_energy)
        FROM energy GROUP BY energy.node"""

    assert asked_of(archive, query, tmp_path).rows == [("n1", 2.0, 1.0, HOUR_MS, 3.0, "GPU-1")]


async def rows_of(log: RecordedLog, archive: Archive | None, place: Path) -> dict[str, Rows]:
    """All tables, from the archive and from what it lacks."""
    place.mkdir()
    names = [table.name for table in (*OF_FACTS, NAMES, *OF_LOG)]
    files = Files(names, place)
    if archive is not None:
        files.add_archive(archive)
    async with log.reading() as (history, facts):
        await files.add_log(history, facts)
    return {name: asked(f"FROM {name} ORDER BY ALL", files, place) for name in names}


@pytest.mark.anyio
@pytest.mark.parametrize("hours", [0, 1, 2, 3])
async def test_archive_and_log_together_are_the_whole(
    small_log: RecordedLog, tmp_path: Path, hours: int
) -> None:
    for watts in (300, 310, 320):
        await small_log.builder.facts(power("n1", watts), after_s=3600)
    whole = await rows_of(small_log, None, tmp_path / "whole")
    begun = small_log.builder.clock() // (HOUR_MS * 10**6) - 3
    end = (begun + hours) * HOUR_MS * 10**6
    await written_archive(small_log, tmp_path / "archive", Parquet(), before=end)

    both = await rows_of(small_log, Archive.of(tmp_path / "archive"), tmp_path / "both")

    assert both == whole
    assert all(whole[name].rows for name in ("readings", "names", "decisions"))


@pytest.mark.anyio
@pytest.mark.parametrize("later", [[], [power("n1", 301)]], ids=["shorter", "of other facts"])
async def test_an_archive_of_another_log_is_not_joined_with_this_one(
    small_log: RecordedLog, migrated_file: Path, tmp_path: Path, later: list[Fact]
) -> None:
    await small_log.builder.facts(power("n1", 300))
    await written_archive(small_log, tmp_path / "archive", Parquet())
    (tmp_path / "other").mkdir()
    database = shutil.copyfile(migrated_file, tmp_path / "other" / "joulie.db")

    async with small_log_in(database, tmp_path / "other") as other:
        if later:
            await other.builder.facts(*later)
        with pytest.raises(ArchiveBroken, match="another log"):
            await rows_of(other, Archive.of(tmp_path / "archive"), tmp_path / "both")
