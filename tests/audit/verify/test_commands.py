"""The audit commands on the golden log, with valid and invalid arguments."""

import argparse
import contextlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from sqlalchemy import Engine

import joulie_migrations
from joulie_audit.access.past import worthwhile_jobs
from joulie_bus.events import DECISION_TYPES
from joulie_cli.ask.decisions import ENTRY_KINDS
from joulie_cli.command_line.commands import commands
from joulie_cli.command_line.parser import joined
from joulie_cli.main import main
from joulie_projections.chain.head import decode, encode
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.store import database
from joulie_projections.twin.columns import TwinColumns
from projections_kit import tamper

GOLDEN = Path(__file__).parents[1] / "golden"
POD = Path(__file__).parents[2] / "data" / "pod.yaml"


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def parsed(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden log, restored by the command."""
    path = tmp_path_factory.mktemp("commands") / "data"
    assert main(["archive", "restore", "--dir", str(GOLDEN), "--data", str(path)]) == 0
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A data directory with an empty log."""
    directory = DataDirectory(tmp_path / "empty")
    directory.create()
    engine: Engine = database.migrator(directory.database)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    return directory.path


@pytest.fixture
def joulie(data: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, data: Path = data) -> CommandResult:
        code = main([*words, "--data", str(data)])
        out, err = capsys.readouterr()
        return CommandResult(code, out, err)

    return run


@pytest.fixture
def kept(data: Path, tmp_path: Path) -> Path:
    """A file with the heads of the log."""
    file = tmp_path / "heads.json"
    with History.of(data / "joulie.db") as history:
        file.write_bytes(b"\n".join(map(encode, history.heads())))
    return file


@pytest.fixture
def scored(data: Path) -> str:
    """A pod that was scored."""
    with History.of(data / "joulie.db") as history:
        entry = next(history.find(EntryQuery(kinds=("decision.prioritize",)), 1))
        return entry.pod


@pytest.fixture
def node(data: Path) -> str:
    with History.of(data / "joulie.db") as history:
        return min(row.key for row in history.states("node"))


FACTS = ("--archive", str(GOLDEN))


# --- explain ----------------------------------------------------------------------------------


def test_a_pod_is_explained_on_one_screen(joulie: Run, scored: str) -> None:
    result = joulie("explain", scored, *FACTS)

    lines = result.out.splitlines()
    assert result.code == 0
    assert lines[0].startswith(f"{scored}   20")
    heads = [line[2:12].strip() for line in lines[1:] if line[2:12].strip()]
    assert heads[:6] == ["class", "requests", "view", "filter", "best", "scores"]
    assert heads[-2:] == ["outcome", "timeline"]
    assert len(lines) <= 28


def test_an_explanation_as_json_has_the_view_and_the_entries(joulie: Run, scored: str) -> None:
    parsed = joulie("explain", scored, "-o", "json", *FACTS).parsed

    attempt = parsed["attempt"]
    assert f"{attempt['pod']['namespace']}/{attempt['pod']['name']}" == scored
    assert set(attempt) >= {"view", "view_age_ms", "settings", "entries", "scores", "refused"}
    assert 1 <= len(attempt["scores"]) <= 5


@pytest.mark.slow
@pytest.mark.long
def test_the_terms_of_a_candidate_below_the_top_five_are_recomputed(
    joulie: Run, data: Path, scored: str
) -> None:
    scores = joulie("explain", scored, "-o", "json", *FACTS).parsed["attempt"]["scores"]
    top = {each["node"] for each in scores}
    with History.of(data / "joulie.db") as history:
        others = sorted({row.key for row in history.states("node")} - top)
    asked = [joulie("explain", scored, "--node", name, "-o", "json", *FACTS) for name in others]

    found = [result.parsed["attempt"]["scores"] for result in asked if result.code == 0]
    parsed = [scores[-1]["node"] for scores in found]
    refused = {result.err.split("explain: ")[1].split(" ")[0] for result in asked if result.code}
    assert parsed
    assert set(parsed) | refused == set(others)


@pytest.mark.slow
def test_an_explanation_needs_no_facts_to_name_the_node(
    joulie: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the log that ends with the score of the last pod: the state has the binding."""
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    copy = shutil.copytree(data, tmp_path / "truncated")
    with History.of(copy / "joulie.db") as history:
        entry = next(history.find(EntryQuery(kinds=("decision.prioritize",)), 1))
    with contextlib.closing(sqlite3.connect(copy / "joulie.db")) as db, db:
        db.execute("DROP TRIGGER decision_no_delete")
        db.execute("DELETE FROM decision WHERE pos > ?", (entry.pos,))

    result = joulie("explain", entry.pod, data=copy)

    assert result.code == 0
    assert re.search(r"outcome    (bound to|not bound)", result.out)


def test_the_last_changes_of_a_node_have_their_reasons(joulie: Run, node: str) -> None:
    result = joulie("explain", "node", node, *FACTS)

    assert result.code == 0
    assert result.out.startswith(f"{node} at position ")
    assert "performance is wanted; it is among the densest" in result.out


def test_a_plan_is_explained_by_its_id_and_by_its_position(joulie: Run) -> None:
    listed = joulie("plans", "--limit", "1000", "-o", "json", *FACTS).parsed["items"]
    place = next(each for each in listed if "plan" in each)
    plan = {**place["plan"], "position": place["position"]}

    by_id = joulie("explain", "plan", plan["plan"], *FACTS)
    by_position = joulie("explain", "plan", str(plan["position"]), *FACTS)

    assert by_id == by_position
    supply = f"{plan['performance']} of {plan['nodes']} nodes supply performance"
    assert 0 < plan["performance"] < plan["nodes"]
    assert f"because    static_partition: {supply}" in by_id.out


# --- lists and time travel --------------------------------------------------------------------


def test_the_newest_decisions_are_listed_newest_last(joulie: Run) -> None:
    head, *lines = joulie("decisions", "--limit", "3").out.splitlines()

    assert head.split() == ["ENTRY", "AT", "KIND", "WHAT"]
    numbers = [int(line.split()[0]) for line in lines]
    assert numbers == sorted(numbers)
    assert len(numbers) == 3


def test_decisions_are_filtered_by_pod_kind_and_node(joulie: Run, scored: str, node: str) -> None:
    words = ("decisions", "--pod", scored, "--kind", "prioritize", "-o", "json")

    (parsed,) = joulie(*words).parsed["items"]

    assert (f"{parsed['namespace']}/{parsed['name']}", parsed["verb"]) == (scored, "prioritize")
    assert len(joulie("decisions", "--node", node, "--limit", "5").out.splitlines()) == 1 + 5


def test_entries_can_be_filtered_by_every_kind() -> None:
    assert set(ENTRY_KINDS) == {cls.TYPE.removeprefix("decision.") for cls in DECISION_TYPES}


def test_plans_that_changed_nothing_are_shown_on_request(joulie: Run) -> None:
    few, all_of_them = joulie("plans", *FACTS).out, joulie("plans", "--all", *FACTS).out

    assert few.startswith("POSITION")
    assert len(all_of_them.splitlines()) >= len(few.splitlines())


def test_a_twin_is_shown_now_and_at_a_position(joulie: Run, node: str) -> None:
    now = joulie("twin", node, "-o", "json").parsed
    then = joulie("twin", node, "--at", "60", "-o", "json", *FACTS).parsed

    assert now["node"]["class"] in ("performance", "eco")
    assert (then["position"], then["node"]["class"]) == (60, "unknown")


def test_a_twin_is_that_of_the_rows_that_everything_else_reads(
    joulie: Run, node: str, data: Path
) -> None:
    found = joulie("twin", node, "-o", "json").parsed

    with History.of(data / "joulie.db") as history:
        columns = TwinColumns.of_state(history.cluster_state())
    row = columns.rows[node]
    assert found["ambient_c"] == columns.floats("ambient_c")[row]
    assert found["node"]["cooling"] == columns.floats("cooling")[row]
    assert found["node"]["capped_w"] == columns.floats("capped_w")[row]


def test_the_history_of_a_twin_lists_changes_by_plans(joulie: Run, node: str) -> None:
    result = joulie("twin", node, "--history", *FACTS)

    assert "caps: CPU " in result.out


# --- proofs -----------------------------------------------------------------------------------


def test_the_log_verifies_with_its_archive_and_a_file_of_heads(joulie: Run, kept: Path) -> None:
    result = joulie("verify", "--heads", str(kept), *FACTS)

    assert result.code == 0
    assert "every hash, link and signature is valid" in result.out
    assert "every file is intact and matches the log" in result.out


@pytest.mark.slow
def test_a_restored_log_verifies_without_a_broker_and_reports_the_unchecked_part(
    joulie: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")

    asked, result = joulie("verify"), joulie("verify", "--heads", "none")

    assert (asked.code, asked.out) == (2, "")
    assert "give --heads FILE" in asked.err
    assert result.code == 0
    assert result.out.endswith("a log cut off at its end would not be detected.\n")


def test_two_heads_belong_to_one_log(joulie: Run, kept: Path) -> None:
    heads = [decode(line).pos for line in kept.read_bytes().splitlines()]

    same = joulie("diff", str(heads[0]), str(kept))

    assert (same.code, same.out[:7]) == (0, "One log")


def test_the_golden_log_replays_and_what_if_compares(joulie: Run, tmp_path: Path) -> None:
    again = joulie("replay", "-o", "json", *FACTS).parsed
    plot = tmp_path / "shifts.svg"
    result = joulie("whatif", "--set", "MARGINAL_CPU_UTIL_COEFF=1.5", "--plot", str(plot), *FACTS)

    assert again["mismatches"] == 0
    assert "Open loop" in result.out
    assert plot.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("events", "decisions", "cores", "processes"),
    [
        pytest.param(0, 0, 8, 1, id="an empty log"),
        pytest.param(999_999, 0, 8, 1, id="too short to share"),
        pytest.param(1_000_000, 0, 8, 2, id="long"),
        pytest.param(1_000, 30_000, 8, 3, id="many decisions"),
        pytest.param(10_000_000, 0, 4, 4, id="at most one per core"),
    ],
)
def test_the_number_of_processes_follows_the_size_of_the_log(
    events: int, decisions: int, cores: int, processes: int
) -> None:
    assert worthwhile_jobs(events, decisions, cores) == processes


def test_another_policy_share_is_compared_by_class_and_namespace(joulie: Run) -> None:
    parsed = joulie("whatif", "--set", "STATIC_HP_FRAC=0.1", "-o", "json", *FACTS).parsed

    assert set(parsed["by_class"]) == {"performance", "standard"}
    assert set(parsed["by_namespace"]) == {"team-a", "team-b", "team-c"}
    assert (
        sum(group["decisions"] for group in parsed["by_class"].values())
        == parsed["all"]["decisions"]
    )


def test_an_archive_is_verified_without_a_database(
    joulie: Run, data: Path, kept: Path, tmp_path: Path
) -> None:
    alone = {"data": tmp_path / "auditor"}
    words = ("verify", *FACTS, "--key", str(data / "head.pub"))
    done, compared = joulie(*words, **alone), joulie(*words, "--heads", str(kept), **alone)

    assert (done.code, done.err, compared.code) == (0, "", 0)
    assert "every hash, link and signature is valid" in done.out
    assert ("No anchored heads" in done.out, "No anchored heads" in compared.out) == (True, False)
    assert joulie(*words, "-o", "json", **alone).parsed["archive"]["flaw"] is None


def test_a_changed_archive_is_reported_without_a_database(
    joulie: Run, data: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN, copy)
    part = next(file for file in sorted((copy / "log").rglob("*")) if file.is_file())
    part.write_bytes(part.read_bytes()[:-9] + b"otherwise")
    words = ("verify", "--archive", str(copy), "--key", str(data / "head.pub"))
    done = joulie(*words, data=tmp_path / "auditor")

    assert done.code in (1, 2)
    assert str(copy) in done.out + done.err


def test_an_archive_without_a_key_is_not_verified(joulie: Run, tmp_path: Path) -> None:
    done = joulie("verify", *FACTS, data=tmp_path / "auditor")

    assert (done.code, done.out) == (2, "")
    assert "head.pub is missing" in done.err


def test_an_archive_command_without_a_directory_is_an_error(joulie: Run) -> None:
    result = joulie("archive")

    assert (result.code, result.out) == (2, "")
    assert (
        "No archive is named. Nothing was done. Give --dir DIR, or set ARCHIVE_DIR." in result.err
    )


READERS = {
    "explain": ["explain", "node", "NODE"],
    "plans": ["plans"],
    "twin": ["twin", "NODE", "--at", "500", "--history"],
    "verify": ["verify", "--heads", "HEADS"],
    "replay": ["replay", "--jobs", "1"],
    "whatif": ["whatif", "--set", "MARGINAL_CPU_UTIL_COEFF=0.8", "--to-position", "500"],
    "decisions": ["decisions", "--limit", "3"],
    "diff": ["diff", "HEADS", "HEADS"],
    "dead": ["dead", "list"],
    "gpus": ["gpus"],
    "place": ["place", "-f", str(POD)],
}
FOLDERS_OF_FACTS = {
    "rebuild",
    "ledger",
    "report",
    "caps",
    "mcp",
    "sql",
    "try",
}  # they have tests of their own


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
def test_the_archive_of_the_settings_is_read_like_the_one_of_the_option(
    joulie: Run, kept: Path, node: str, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    named = {"NODE": node, "HEADS": str(kept)}
    words = [named.get(word, word) for word in words]
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    by_option = joulie(*words, "--archive", str(GOLDEN))
    monkeypatch.setenv("ARCHIVE_DIR", str(GOLDEN))

    by_setting = joulie(*words)

    assert by_setting.code == by_option.code == 0
    assert timeless(by_setting.out) == timeless(by_option.out)


def timeless(text: str) -> str:
    return re.sub(r"in [0-9.]+ s", "in a while", text)


def test_every_command_that_reads_an_archive_is_covered() -> None:
    options = {}
    for name, command in commands().items():
        parser = argparse.ArgumentParser()
        command.load().options(parser)
        options[name] = {flag for action in parser._actions for flag in action.option_strings}

    assert {name for name, flags in options.items() if "--archive" in flags} == {
        *READERS,
        *FOLDERS_OF_FACTS,
        "prove",  # the golden archive is older than checkpoints: test_proof.py
    }


def test_an_archive_directory_without_an_archive_is_ignored(
    joulie: Run, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHIVE_DIR", str(tmp_path / "later"))

    assert joulie("twin", node).code == 0


@pytest.mark.slow
def test_without_the_streams_no_part_is_archived(
    joulie: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")

    result = joulie("archive", "--dir", str(tmp_path / "a"), "--now")

    assert (result.code, result.out) == (2, "")
    assert not list((tmp_path / "a").glob("facts/*/*/*"))


@pytest.mark.parametrize("of", ["/dev/zero", "other keys", "a terabyte"])
def test_keys_of_an_archive_that_are_no_file_of_keys_are_not_restored(
    joulie: Run, tmp_path: Path, of: str
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "a")
    keys = tmp_path / "a/head.pub"
    if of == "a terabyte":
        os.truncate(keys, 1 << 40)
    else:
        (tmp_path / "other keys").write_bytes(keys.read_bytes())
        keys.unlink()
        keys.symlink_to(tmp_path / of)

    result = joulie("archive", "restore", "--dir", str(tmp_path / "a"), data=tmp_path / "new")

    why = "it is larger than 1 MiB" if of == "a terabyte" else "it is a link"
    assert (result.code, result.out) == (2, "")
    assert f"{keys} is not what was archived: {why}" in result.err
    assert not (tmp_path / "new").exists()


# --- wrong names, empty logs, other times -----------------------------------------------------

NO_HEADS = ("--heads", "none")
WRONG = {
    "an unknown pod": (["explain", "team-a/nix"], "No decision about 'team-a/nix' is in"),
    "an unknown node": (["explain", "node", "nix", *FACTS], "No node 'nix' was known at position"),
    "an unknown plan": (["explain", "plan", "p0", *FACTS], "There is no plan 'p0'"),
    "too many words": (["explain", "a", "b", "c"], "Nothing was explained."),
    "a twin of an unknown node": (["twin", "nix"], "No node 'nix' was known at position"),
    "a position beyond": (["twin", "nix", "--at", "99999999"], "There is no position 99999999"),
    "the future": (["twin", "nix", "--at", "2999-01-01"], "is in the future. The newest commit"),
    "before the log": (["twin", "nix", "--at", "1999-01-01"], "There is no state at 1999-01-01"),
    "no time at all": (["twin", "nix", "--at", "noon"], "'noon' is not a position, a time such as"),
    "no duration": (["twin", "nix", "--at", "-9parsecs"], "'-9parsecs' is not a position"),
    "decisions since tomorrow": (["decisions", "--since", "2999-01-01"], "lies in the future"),
    "decisions of an unknown pod": (["decisions", "--pod", "nix"], "No decision about 'nix'"),
    "decisions about an unknown node": (["decisions", "--node", "nix"], "No node 'nix' is known"),
    "a proof of nothing": (["prove", "99999999"], "There is no entry 99999999: the log goes from"),
    "a head at an unsigned entry": (["diff", "1", "99999999"], "No head was signed at entry 1"),
    "heads in no file": (["verify", "--heads", "/nowhere"], "/nowhere holds no heads"),
    "an archive that is none": (["replay", "--archive", "/nowhere"], "there is neither facts/ nor"),
    "a replay backwards": (
        ["replay", "--from-position", "50", "--to-position", "10"],
        "--from-position 50 is after --to-position 10",
    ),
    "a check backwards": (
        ["verify", *NO_HEADS, "--from-entry", "5", "--to-entry", "1"],
        "--from-entry 5 is after",
    ),
    "a question backwards": (
        ["whatif", "--policy", "queue_aware_v1", "--from-position", "5", "--to-position", "1"],
        "--from-position 5 is after --to-position 1, so there is no position between them",
    ),
    "a replay of nothing": (
        ["replay", "--from-position", "99999999"],
        "There is no position 99999999: the",
    ),
    "a check of nothing": (
        ["verify", *NO_HEADS, "--from-entry", "99999999"],
        "There is no entry 99999999: the newest is",
    ),
    "no setting": (["whatif", "--set", "NIX=1"], "NIX: not a setting of scores or plans"),
    "no value": (["whatif", "--set", "MARGINAL_CPU_UTIL_COEFF"], "write it as NAME=VALUE"),
    "a bad value": (
        ["whatif", "--set", "MARGINAL_CPU_UTIL_COEFF=x"],
        "MARGINAL_CPU_UTIL_COEFF='x'",
    ),
    "no policy": (["whatif", "--policy", "nix"], "POLICY_TYPE='nix'"),
    "nothing different": (["whatif"], "no change is given: give --set NAME=VALUE"),
    "restoring onto a log": (["archive", "restore", "--dir", str(GOLDEN)], "exists already"),
}


@pytest.mark.parametrize(("words", "answer"), WRONG.values(), ids=WRONG)
def test_an_invalid_request_gives_one_line_with_the_reason(
    joulie: Run, words: list[str], answer: str
) -> None:
    result = joulie(*words)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"joulie {words[0]}: ")
    assert answer in result.err


EMPTY = {
    "explain": (["explain", "team/a"], "The log has no decisions yet"),
    "explain node": (["explain", "node", "n1"], "The log is empty"),
    "decisions": (["decisions"], "The log has no decisions yet"),
    "plans": (["plans"], "The log is empty"),
    "twin": (["twin", "n1"], "The log is empty"),
    "prove": (["prove", "1"], "the log has no entries yet"),
    "whatif": (["whatif", "--set", "MARGINAL_CPU_UTIL_COEFF=1"], "The log is empty"),
    "verify": (["verify"], "head.pub is missing"),
}


@pytest.mark.parametrize(("words", "answer"), EMPTY.values(), ids=EMPTY)
def test_an_empty_log_is_reported(joulie: Run, empty: Path, words: list[str], answer: str) -> None:
    result = joulie(*words, data=empty)

    assert (result.code, result.out) == (2, "")
    assert answer in result.err


def test_an_empty_log_replays_to_nothing(joulie: Run, empty: Path) -> None:
    result = joulie("replay", "-o", "json", data=empty)

    assert (result.code, result.parsed["events"], result.parsed["mismatches"]) == (0, 0, 0)


COMMANDS = [
    *(["explain", "a"], ["decisions"], ["plans"], ["twin", "a"], ["verify"], ["prove", "1"]),
    *(["diff", "1", "2"], ["replay"], ["whatif", "--policy", "static_partition"]),
    *(["archive", "--dir", "x"], ["status"], ["gpus"], ["dead", "list"], ["rebuild"]),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_directory_without_data_is_reported(
    joulie: Run, tmp_path: Path, words: list[str]
) -> None:
    result = joulie(*words, data=tmp_path / "none")

    assert result.code == 2
    assert f"There is no Joulie data in {tmp_path / 'none'}." in result.err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_database_of_an_older_schema_is_reported(
    joulie: Run, empty: Path, words: list[str]
) -> None:
    tamper(empty / "joulie.db", "UPDATE alembic_version SET version_num = '0001'")
    Signer.of(empty / "head.key").publish(empty / "head.pub")

    result = joulie(*words, data=empty)

    assert (result.code, result.out) == (2, "")
    assert "The database is at schema 0001, this code wants" in result.err


def test_a_relative_time_needs_no_equals_sign() -> None:
    assert joined(["twin", "n", "--at", "-10m", "-o", "json"]) == [
        "twin",
        "n",
        "--at=-10m",
        "-o",
        "json",
    ]
    assert joined(["twin", "--at", "5", "-h"]) == ["twin", "--at", "5", "-h"]


# --- formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [*READERS.values(), ["status"]], ids=lambda w: w[0])
def test_yaml_holds_what_json_holds(
    joulie: Run, kept: Path, node: str, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("ARCHIVE_DIR", str(GOLDEN))
    named = {"NODE": node, "HEADS": str(kept)}
    words = [named.get(word, word) for word in words]

    as_text = joulie(*words, "-o", "json").out
    as_json = json.loads(as_text)
    as_yaml = yaml.safe_load(joulie(*words, "--output", "yaml").out)

    assert as_text
    # These hold the time of the call.
    changing = {
        "age_ms",
        "behind_ms",
        "seconds",
        "commit_age_s",
        "oldest_s",
        "readings",
        "stale",
        "ledger_behind_s",
    }
    assert without(as_yaml, changing) == without(as_json, changing)


def without(tree: Any, names: Set[str]) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {name: value for name, value in tree.items() if name not in names}


def test_json_is_short_for_the_format(joulie: Run) -> None:
    by_name = joulie("decisions", "--output", "json").parsed["items"]

    assert by_name
    assert joulie("decisions", "-o", "json").parsed["items"] == by_name


def test_a_stream_has_one_document_a_line(joulie: Run) -> None:
    whole = joulie("decisions", "--limit", "3", "-o", "json").parsed["items"]
    lines = joulie("decisions", "--limit", "3", "-o", "jsonl").out.splitlines()

    assert [json.loads(line) for line in lines] == whole[::-1]
