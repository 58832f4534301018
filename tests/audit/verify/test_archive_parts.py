"""An archive that several processes verify is judged as by one."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from audit_kit import RecordedLog, typed_columns, written_archive
from bus_kit import ask, power
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.parts import FACTS, MANIFEST, Archive, Part, sealed
from joulie_audit.archive.untrusted_files import checksum
from joulie_audit.columns.tables import KINDS
from joulie_audit.verify.verify_archive import ArchiveReport, verify_archive
from joulie_bus.events import TelemetrySampled

pytestmark = pytest.mark.anyio
HOURS = 6


@pytest.fixture
async def archive(small_log: RecordedLog, tmp_path: Path) -> Path:
    for hour in range(HOURS):
        await small_log.builder.facts(power("n1", 99 + hour), after_s=3600)
        await small_log.builder.answer(ask(f"p{hour}"))
        small_log.builder.sign()
    await written_archive(small_log, tmp_path / "a", Parquet())
    return tmp_path / "a"


def judged(log: RecordedLog, archive: Path, jobs: int) -> ArchiveReport:
    return verify_archive(Archive.of(archive), log.builder.signer.public, jobs=jobs)


async def test_two_processes_find_what_one_finds(small_log: RecordedLog, archive: Path) -> None:
    one, two = (judged(small_log, archive, jobs) for jobs in (1, 2))

    assert (one.flaw, one.parts > HOURS, one.facts) == (None, True, small_log.builder.position)
    assert two == one


@pytest.mark.parametrize("damaged", [[1], [4, 2]], ids=["one part", "two parts"])
async def test_the_first_of_several_flaws_is_named(
    small_log: RecordedLog, archive: Path, damaged: Sequence[int]
) -> None:
    parts = Archive.of(archive).facts
    for number in damaged:
        forge(parts[number][0])
    one, two = (judged(small_log, archive, jobs) for jobs in (1, 2))

    assert str(parts[min(damaged)][0]) in (one.flaw or "")
    assert two == one


def forge(place: Path) -> None:
    """Changes a column and its checksum, and seals this part and all later ones again."""
    file = place / "readings.parquet"
    columns = typed_columns(file)
    Parquet().write(file, {**columns, "power_mw": [1] * len(columns["node"])}, KINDS["readings"])
    before = Part.before_the_first(FACTS)
    for each in sorted(place.parents[2].glob(f"*/*/*/{MANIFEST}"), key=lambda at: at.parent.name):
        kept = msgspec.json.decode(each.read_bytes(), type=Part)
        files = [replace(one, sha256=checksum(each.parent / one.name)) for one in kept.files]
        before = sealed(replace(kept, files=files, prev=before.seal))
        each.write_bytes(msgspec.json.encode(before))


async def test_a_part_ends_where_its_readings_have_many_cards(
    small_log: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_audit.archive.unarchived.PART_READ_ROWS", 8)
    first = small_log.builder.position
    for number in range(6):
        cards = {f"g{card}": 1000 + number for card in range(4)}
        await small_log.builder.facts(TelemetrySampled(node="n1", power_mw=9000, card_mw=cards))

    await written_archive(small_log, tmp_path / "a", Parquet())

    ends = [part.last for _, part in Archive.of(tmp_path / "a").facts]
    assert ends == [first + 2, first + 4, first + 6]
    assert judged(small_log, tmp_path / "a", 1).flaw is None
