"""The commands as a newcomer tries them, right and wrong, upon a log that was recorded once."""

import argparse
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from sqlalchemy import Engine

import joulie_migrations
from joulie_bus.events import DECISION_TYPES
from joulie_cli.display.common_options import ENTRY_KINDS, OPTIONS, joined
from joulie_cli.log_access.past import worthwhile_jobs
from joulie_cli.main import main
from joulie_cli.supervisor.data_directory import DataDirectory
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.history import History, Wanted
from joulie_projections.store import database
from joulie_projections.testing import edited

GOLDEN = Path(__file__).parents[1] / "golden"


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden log, restored as a user would."""
    path = tmp_path_factory.mktemp("commands") / "data"
    assert main(["archive", "restore", "--to", str(GOLDEN), "--data", str(path)]) == 0
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Everything is there, and nothing has happened yet."""
    directory = DataDirectory(tmp_path / "empty")
    directory.create()
    engine: Engine = database.migrator(directory.database)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    return directory.path


@pytest.fixture
def joulie(data: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, data: Path = data) -> Said:
        code = main([*words, "--data", str(data)])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture
def kept(data: Path, tmp_path: Path) -> Path:
    """The heads, outside of the database."""
    file = tmp_path / "heads.json"
    with History.of(data / "joulie.db") as history:
        file.write_bytes(msgspec.json.encode(history.heads()))
    return file


@pytest.fixture
def scored(data: Path) -> str:
    """A pod that was scored."""
    with History.of(data / "joulie.db") as history:
        entry = next(history.find(Wanted(kinds=("decision.prioritize",)), 1))
        return entry.pod


@pytest.fixture
def node(data: Path) -> str:
    with History.of(data / "joulie.db") as history:
        return min(row.key for row in history.states("node"))


FACTS = ("--archive", str(GOLDEN))


# --- explain ----------------------------------------------------------------------------------


def test_a_pod_is_explained_on_one_screen(joulie: Run, scored: str) -> None:
    said = joulie("explain", scored, *FACTS)

    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].startswith(f"{scored}   20")
    heads = [line[2:12].strip() for line in lines[1:] if line[2:12].strip()]
    assert heads[:5] == ["class", "requests", "view", "filter", "scores"]
    assert lines[-1].split()[0] == "outcome"
    assert len(lines) <= 24


def test_an_explanation_as_json_holds_all_that_it_rests_on(joulie: Run, scored: str) -> None:
    told = joulie("explain", scored, "--json", *FACTS).told

    assert f"{told['pod']['namespace']}/{told['pod']['name']}" == scored
    assert set(told) >= {"view", "view_age_ms", "settings", "entries", "top", "rejections"}
    assert 1 <= len(told["top"]) <= 5
    assert told["missing"] == ""


def test_a_candidate_that_is_not_among_the_best_is_computed_again(
    joulie: Run, data: Path, scored: str
) -> None:
    top = {terms["node"] for terms in joulie("explain", scored, "--json", *FACTS).told["top"]}
    with History.of(data / "joulie.db") as history:
        others = sorted({row.key for row in history.states("node")} - top)
    asked = [joulie("explain", scored, "--node", name, "--json", *FACTS) for name in others]

    told = [said.told["asked_for"]["node"] for said in asked if said.code == 0]
    refused = {said.err.split("explain: ")[1].split(" ")[0] for said in asked if said.code}
    assert told
    assert set(told) | refused == set(others)


def without_an_outcome(data: Path, copy: Path) -> tuple[Path, str]:
    """A log that ends with the last pod's score, before anybody knows where it went."""
    shutil.copytree(data, copy)
    with History.of(copy / "joulie.db") as history:
        entry = next(history.find(Wanted(kinds=("decision.prioritize",)), 1))
    with sqlite3.connect(copy / "joulie.db") as db:
        db.execute("DROP TRIGGER decision_no_delete")
        db.execute("DELETE FROM decision WHERE pos > ?", (entry.pos,))
    return copy, entry.pod


def test_without_its_facts_an_explanation_says_what_it_cannot_tell(
    joulie: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    forgetful, pod = without_an_outcome(data, tmp_path / "forgetful")

    said = joulie("explain", pod, data=forgetful)

    assert said.code == 0
    assert "the node is unknown: No NATS server answers" in said.out


def test_a_nodes_last_steps_are_told_with_their_reasons(joulie: Run, node: str) -> None:
    said = joulie("explain", "node", node, *FACTS)

    assert said.code == 0
    assert said.out.startswith(f"{node}: its last ")
    assert "static_partition: 20 of 40 nodes supply performance" in said.out


def test_a_plan_is_explained_by_its_id_and_by_its_position(joulie: Run) -> None:
    plan = joulie("plans", "--json", *FACTS).told[0]

    by_id = joulie("explain", "plan", plan["plan"], *FACTS)
    by_position = joulie("explain", "plan", str(plan["position"]), *FACTS)

    assert by_id == by_position
    assert "because    static_partition: 20 of 40 nodes supply performance" in by_id.out


# --- lists and time travel --------------------------------------------------------------------


def test_the_newest_decisions_are_listed_newest_last(joulie: Run) -> None:
    lines = joulie("decisions", "--limit", "3").out.splitlines()

    numbers = [int(line.split()[0]) for line in lines]
    assert numbers == sorted(numbers)
    assert len(numbers) == 3


def test_decisions_are_chosen_by_pod_kind_and_node(joulie: Run, scored: str, node: str) -> None:
    words = ("decisions", "--pod", scored, "--kind", "prioritize", "--json")

    (told,) = [json.loads(line) for line in joulie(*words).out.splitlines()]

    assert (told["pod"], told["kind"]) == (scored, "decision.prioritize")
    assert len(joulie("decisions", "--node", node, "--limit", "5").out.splitlines()) == 5


def test_entries_can_be_chosen_by_every_kind_that_there_is() -> None:
    assert set(ENTRY_KINDS) == {cls.TYPE.removeprefix("decision.") for cls in DECISION_TYPES}


def test_plans_that_changed_nothing_are_shown_on_request(joulie: Run) -> None:
    few, all_of_them = joulie("plans", *FACTS).out, joulie("plans", "--all", *FACTS).out

    assert re.match(r"\d+ of \d+ plans", few)
    assert len(all_of_them.splitlines()) >= len(few.splitlines())


def test_a_twin_now_and_then(joulie: Run, node: str) -> None:
    now = joulie("twin", node, "--json").told
    then = joulie("twin", node, "--at", "60", "--json", *FACTS).told

    assert now["twin"]["node_class"] in ("performance", "eco")
    assert (then["position"], then["twin"]["node_class"]) == (60, "unknown")


def test_a_twins_history_is_what_plans_did(joulie: Run, node: str) -> None:
    said = joulie("twin", node, "--history", *FACTS)

    assert "caps set: cpu_cap_pct" in said.out


# --- proofs -----------------------------------------------------------------------------------


def test_the_log_verifies_with_its_archive_and_heads_that_were_kept(
    joulie: Run, kept: Path
) -> None:
    said = joulie("verify", "--heads", str(kept), *FACTS)

    assert said.code == 0
    assert "every hash, link and signature is valid" in said.out
    assert "every file is intact and matches the log" in said.out


def test_a_restored_log_verifies_without_a_broker_and_says_what_that_leaves_open(
    joulie: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")

    asked, said = joulie("verify"), joulie("verify", "--heads", "none")

    assert (asked.code, asked.out) == (2, "")
    assert "give --heads FILE" in asked.err
    assert said.code == 0
    assert said.out.endswith("a log cut off at its end would not be detected.\n")


def test_a_proof_is_json_and_two_heads_are_one_log(joulie: Run, kept: Path) -> None:
    heads = [head["pos"] for head in json.loads(kept.read_bytes())]

    proof = joulie("prove", "2").told
    same = joulie("diff", str(heads[0]), str(kept))

    assert (proof["format"], proof["position"]) == ("joulie-proof/1", 2)
    assert (same.code, same.out[:7]) == (0, "One log")


def test_the_golden_log_replays_and_what_if_compares(joulie: Run, tmp_path: Path) -> None:
    again = joulie("replay", "--json", *FACTS).told
    plot = tmp_path / "shifts.svg"
    said = joulie("whatif", "--set", "SCORE_ECO_BONUS=30", "--plot", str(plot), *FACTS)

    assert again["mismatches"] == 0
    assert "Open loop" in said.out
    assert plot.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("events", "decisions", "cores", "processes"),
    [
        pytest.param(0, 0, 8, 1, id="an empty log"),
        pytest.param(999_999, 0, 8, 1, id="too short to share"),
        pytest.param(1_000_000, 0, 8, 2, id="long"),
        pytest.param(1_000, 30_000, 8, 3, id="many decisions"),
        pytest.param(10_000_000, 0, 4, 4, id="no more than cores"),
    ],
)
def test_a_replay_takes_as_many_processes_as_pay(
    events: int, decisions: int, cores: int, processes: int
) -> None:
    assert worthwhile_jobs(events, decisions, cores) == processes


def test_another_policy_share_is_compared_by_class_and_namespace(joulie: Run) -> None:
    told = joulie("whatif", "--set", "STATIC_HP_FRAC=0.1", "--json", *FACTS).told

    assert set(told["by_class"]) == {"performance", "standard"}
    assert set(told["by_namespace"]) == {"team-a", "team-b", "team-c"}
    assert (
        sum(group["decisions"] for group in told["by_class"].values()) == told["all"]["decisions"]
    )


def test_archive_without_a_directory_names_the_option(joulie: Run) -> None:
    said = joulie("archive")

    assert (said.code, said.out) == (2, "")
    assert "No archive is named. Give --to DIR, or set ARCHIVE_DIR." in said.err


READERS = {
    "explain": ["explain", "node", "NODE"],
    "plans": ["plans"],
    "twin": ["twin", "NODE", "--at", "500", "--history"],
    "verify": ["verify", "--heads", "HEADS"],
    "replay": ["replay", "--jobs", "1"],
    "whatif": ["whatif", "--set", "SCORE_ECO_BONUS=11", "--to", "500"],
    "decisions": ["decisions", "--limit", "3"],
    "prove": ["prove", "1"],
    "diff": ["diff", "HEADS", "HEADS"],
}


@pytest.mark.parametrize("words", READERS.values(), ids=READERS)
def test_the_archive_of_the_settings_is_read_like_one_that_is_named(
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


def test_no_command_that_reads_an_archive_is_left_out() -> None:
    options = {}
    for name, declare in OPTIONS.items():
        parser = argparse.ArgumentParser()
        declare(parser)
        options[name] = {flag for action in parser._actions for flag in action.option_strings}

    assert {name for name, flags in options.items() if "--archive" in flags} == set(READERS)


def test_a_place_for_archives_that_holds_none_yet_is_passed_over(
    joulie: Run, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHIVE_DIR", str(tmp_path / "later"))

    assert joulie("twin", node).code == 0


def test_without_the_streams_nothing_is_archived_in_part(
    joulie: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")

    said = joulie("archive", "--to", str(tmp_path / "a"), "--now")

    assert (said.code, said.out) == (2, "")
    assert not list((tmp_path / "a").glob("facts/*/*/*"))


# --- wrong names, empty logs, other times -----------------------------------------------------

WRONG = {
    "a pod that never was": (["explain", "team-a/nix"], "No decision about 'team-a/nix' is in"),
    "a node that never was": (["explain", "node", "nix", *FACTS], "There is no node"),
    "a plan that never was": (["explain", "plan", "p0", *FACTS], "There is no plan 'p0'"),
    "too many words": (["explain", "a", "b", "c"], "Nothing to explain."),
    "a twin of an unknown node": (["twin", "nix"], "There was no node 'nix' at position"),
    "a position beyond": (["twin", "nix", "--at", "99999999"], "There is no position 99999999"),
    "the future": (["twin", "nix", "--at", "2999-01-01"], "is in the future. The newest commit"),
    "before the log": (["twin", "nix", "--at", "1999-01-01"], "There is no state at 1999-01-01"),
    "no time at all": (["twin", "nix", "--at", "noon"], "'noon' is not a position, a time such as"),
    "no duration": (["twin", "nix", "--at", "-9parsecs"], "'-9parsecs' is not a position"),
    "decisions since tomorrow": (["decisions", "--since", "2999-01-01"], "lies in the future"),
    "decisions of an unknown pod": (["decisions", "--pod", "nix"], "entries matches"),
    "decisions about no node": (["decisions", "--node", "nix"], "No node 'nix' is known"),
    "a proof of nothing": (["prove", "99999999"], "There is no entry 99999999: the log goes from"),
    "a head that never was": (["diff", "1", "99999999"], "No head was signed at entry 1"),
    "heads in no file": (["verify", "--heads", "/nowhere"], "/nowhere holds no heads"),
    "an archive that is none": (["replay", "--archive", "/nowhere"], "there is neither facts/ nor"),
    "no setting": (["whatif", "--set", "NIX=1"], "NIX: not a setting of scores or plans"),
    "no value": (["whatif", "--set", "SCORE_ECO_BONUS"], "write it as NAME=VALUE"),
    "a bad value": (["whatif", "--set", "SCORE_ECO_BONUS=x"], "SCORE_ECO_BONUS='x'"),
    "no policy": (["whatif", "--policy", "nix"], "POLICY_TYPE='nix'"),
    "nothing different": (["whatif"], "no change is given: give --set NAME=VALUE"),
    "restoring onto a log": (["archive", "restore", "--to", str(GOLDEN)], "exists already"),
}


@pytest.mark.parametrize(("words", "answer"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_answered_is_told_in_one_clear_line(
    joulie: Run, words: list[str], answer: str
) -> None:
    said = joulie(*words)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"joulie {words[0]}: ")
    assert answer in said.err


EMPTY = {
    "explain": (["explain", "team/a"], "The log has no decisions yet"),
    "explain node": (["explain", "node", "n1"], "The log is empty"),
    "decisions": (["decisions"], "The log has no decisions yet"),
    "plans": (["plans"], "The log is empty"),
    "twin": (["twin", "n1"], "The log is empty"),
    "prove": (["prove", "1"], "the log has no entries yet"),
    "whatif": (["whatif", "--set", "SCORE_ECO_BONUS=1"], "The log is empty"),
    "verify": (["verify"], "head.pub is missing"),
}


@pytest.mark.parametrize(("words", "answer"), EMPTY.values(), ids=EMPTY)
def test_an_empty_log_is_told_as_one(
    joulie: Run, empty: Path, words: list[str], answer: str
) -> None:
    said = joulie(*words, data=empty)

    assert (said.code, said.out) == (2, "")
    assert answer in said.err


def test_an_empty_log_replays_to_nothing(joulie: Run, empty: Path) -> None:
    said = joulie("replay", "--json", data=empty)

    assert (said.code, said.told["events"], said.told["mismatches"]) == (0, 0, 0)


COMMANDS = [
    *(["explain", "a"], ["decisions"], ["plans"], ["twin", "a"], ["verify"], ["prove", "1"]),
    *(["diff", "1", "2"], ["replay"], ["whatif", "--policy", "static_partition"]),
    *(["archive", "--to", "x"], ["status"], ["gpus"], ["dead", "list"], ["rebuild"]),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_folder_without_data_is_told_so(joulie: Run, tmp_path: Path, words: list[str]) -> None:
    said = joulie(*words, data=tmp_path / "none")

    assert said.code == 2
    assert f"There is no Joulie data in {tmp_path / 'none'}." in said.err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_database_of_an_older_schema_is_told_so(
    joulie: Run, empty: Path, words: list[str]
) -> None:
    edited(empty / "joulie.db", "UPDATE alembic_version SET version_num = '0001'")
    Signer.of(empty / "head.key").publish(empty / "head.pub")

    said = joulie(*words, data=empty)

    assert (said.code, said.out) == (2, "")
    assert "The database is at schema 0001, this code wants" in said.err


def test_a_moment_so_long_ago_needs_no_equals_sign() -> None:
    assert joined(["twin", "n", "--at", "-10m", "--json"]) == ["twin", "n", "--at=-10m", "--json"]
    assert joined(["twin", "--at", "5", "-h"]) == ["twin", "--at", "5", "-h"]
