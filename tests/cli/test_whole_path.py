"""The whole path, as a user runs it: real processes, a real broker, a real database."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from joulie_bus.runtime.settings import BusSettings, Source
from joulie_bus.streams.subjects import Subjects
from joulie_cli.demo.demo import replay_in_background
from joulie_cli.demo.screen import DemoLocation, Screen
from joulie_demo import PATIENCE_S, demo, joulie, running, told_by
from joulie_extender.rules.eco import WANTS_PERFORMANCE
from joulie_projections.component.data_directory import DataDirectory, is_alive
from joulie_projections.component.wiring import Wiring
from joulie_projections.store import database
from joulie_projections.view.view import View
from projections_kit import Postgres


@contextlib.contextmanager
def edited(database: Path) -> Generator[sqlite3.Connection, None, None]:
    """Behind the program's back."""
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        yield db


def knows_where_all_are(data: Path) -> bool:
    """By `joulie status`: each part that has a position. Some start later than others."""
    _, status = told_by("status", "--data", data)
    return all(part["position"] for part in status["parts"] if part["name"] != "nats-server")


def flip_a_byte_of_the_body(database: Path, entry: int) -> None:
    """In the file itself, past every trigger: the body's own bytes are looked up and changed."""
    with edited(database) as db:
        (body,) = db.execute("SELECT body FROM decision WHERE pos = ?", (entry,)).fetchone()
    # Closing the last connection has put everything into the file itself.
    content = bytearray(database.read_bytes())
    at = content.index(body[:64]) + 40  # well inside the first page of the body
    content[at] ^= 1
    database.write_bytes(content)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, int]]:
    """A demo that has ended: its data, what it said, and the processes it had."""
    data = tmp_path_factory.mktemp("demo") / "data"
    with demo(data, "--nodes", "40", "--seed", "7", PRESET="savings") as running:
        running.await_start()
        running.await_decisions(120)
        pids = running.pids()
        told = running.end()
    return data, told, pids


Past = tuple[Path, dict[str, Any], dict[str, int]]


@pytest.mark.long
def test_the_demo_prints_a_summary(past: Past) -> None:
    data, told, _ = past
    listed = joulie(
        "decisions", "--data", data, "--kind", "decision.filter", "--limit", "10000", "-o", "json"
    )
    filters = json.loads(listed.stdout)["items"]

    assert set(told) == {
        *("decisions", "events", "position", "lag_ms", "behind_ms", "nodes", "pods", "refused"),
        *("endpoints", "restarts", "simulated", "spooled", "unwritten", "disk_full_s"),
        "saved",
    }
    assert (told["spooled"], told["unwritten"], told["disk_full_s"]) == (0, 0, 0)
    assert told["simulated"]["bound"] >= told["pods"] - told["simulated"]["pods"]["waiting"] > 0
    assert told["nodes"] == 40
    assert told["decisions"] > 50
    assert told["position"] >= told["events"] > told["decisions"] > told["pods"] > 0
    assert filters
    # PRESET=savings: no node is eco, but the cards of a node may be full.
    assert told["refused"] == sum(bool(each["reason"]) for each in filters)
    assert WANTS_PERFORMANCE not in {each["reason"] for each in filters}
    assert set(told["endpoints"]) == {"extender", "console", "metrics"}


def test_a_demo_ends_after_its_time(tmp_path: Path) -> None:
    with demo(tmp_path, "--nodes", "10", "--for", "1s") as running:
        out, err = running.process.communicate(timeout=2 * PATIENCE_S)

    assert running.process.returncode == 0, err
    assert "console at http://127.0.0.1:" in err
    assert json.loads(out)["nodes"] == 10


@pytest.mark.long
def test_prometheus_finds_the_metrics_of_every_process(past: Past) -> None:
    data, _, pids = past

    groups = json.loads((data / "prometheus.json").read_text())
    assert {group["labels"]["component"] for group in groups} == set(pids) - {"nats-server"}
    assert len({at for group in groups for at in group["targets"]}) == len(groups)


def test_the_demo_leaves_no_process_and_no_lock(past: Past) -> None:
    data, _, pids = past

    assert set(pids) == {
        "nats-server",
        "projector",
        "operator",
        "extender",
        "console",
        "ledger",
        "simulator",
    }
    assert [name for name, pid in pids.items() if is_alive(pid)] == []
    DataDirectory(data).lock().release()


def test_the_log_of_a_demo_is_valid(past: Past) -> None:
    data, told, _ = past

    code, found = told_by("verify", "--data", data)

    assert (code, set(found)) == (0, {"entries", "heads"})
    assert found["entries"] >= told["decisions"]
    assert found["heads"] >= 1


@pytest.mark.long
def test_the_log_of_a_demo_is_asked_with_sql(past: Past) -> None:
    """Facts come from the broker, entries from the database and energy from the ledger."""
    data, _, _ = past
    query = """
        SELECT (SELECT count(*) FROM decisions WHERE kind = 'filter') AS filters,
               (SELECT sum(pods_kwh + idle_kwh) FROM energy) AS kwh,
               (SELECT count(*) FROM nodes) AS nodes,
               (SELECT count(*) FROM scores WHERE node IS NOT NULL) AS scores"""

    code, found = told_by("sql", query, "--data", data)
    _, listed = told_by("decisions", "--kind", "filter", "--limit", "100000", "--data", data)
    _, energy = told_by("energy", "--data", data)

    row = dict(zip(found["columns"], found["rows"][0], strict=True))
    assert code == 0
    assert row["filters"] == len(listed["items"]) > 0
    assert row["kwh"] == pytest.approx(energy["meter_kwh"])
    assert row["nodes"] > 0
    assert row["scores"] > 0


@pytest.mark.long
def test_tools_of_a_language_model_answer_about_the_data_of_a_demo(past: Past) -> None:
    data, _, _ = past
    call = {"name": "decisions", "arguments": {"limit": 1}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}

    done = subprocess.run(
        [sys.executable, "-m", "joulie_cli.main", "mcp", "--data", str(data)],
        input=f"{json.dumps(request)}\nno message\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )

    answer, refused = map(json.loads, done.stdout.splitlines())
    assert answer["result"]["structuredContent"]["items"]
    assert refused["error"]["code"] == -32700


@pytest.mark.long
def test_every_decision_is_recomputed_to_the_last_bit(past: Past) -> None:
    data, told, _ = past

    code, found = told_by("replay", "--data", data)

    assert (code, found["mismatches"]) == (0, 0)
    assert found["decisions"] == told["decisions"]
    assert found["events"] >= told["position"]


def test_the_next_plan_is_computed_from_the_log_and_names_the_nodes_that_save_next(
    past: Past,
) -> None:
    data, told, _ = past

    code, found = told_by("plans", "--next", "10m", "--data", data)

    plan = found["plan"]
    assert (code, plan["performance"]) == (0, plan["nodes"])  # PRESET=savings: none is eco
    assert plan["view"] >= told["position"]
    assert (found["now_ms"] - found["at_ms"], found["after_s"]) == (600_000, 600)
    assert len(set(found["least_dense_first"]) | set(found["draining"])) == plan["nodes"]
    shown = joulie("plans", "--next", "--limit", "1", "--data", data).stdout
    assert f"{found['least_dense_first'][0]}, ...\n" in shown


def test_the_demo_replays_its_own_decisions(past: Past, tmp_path: Path) -> None:
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", str(past[0]), str(data)], check=True)
    place = DemoLocation({}, "joulie", f" --data {data}", 60)
    wires = Wiring(Source.of(), BusSettings(), DataDirectory(data), Subjects("local"))
    engine = database.reader(data / "joulie.db")
    screen = Screen(View(engine, wires.subjects), place)

    asyncio.run(replay_in_background(wires, screen, after_s=0))

    engine.dispose()
    assert screen.proof.endswith("s: no mismatches.")
    assert f" {past[1]['decisions']} decisions and " in screen.proof


@pytest.mark.timeout(300)
@pytest.mark.parametrize("decisions", [20, pytest.param(400, marks=pytest.mark.drill)])
@pytest.mark.long
def test_a_demo_on_postgres_has_the_same_result_and_no_database_file(
    decisions: int, postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.empty()
    assert joulie("migrate", "--data", tmp_path, DATABASE_URL=url).returncode == 0
    with demo(tmp_path, "--nodes", "40", "--seed", "7", DATABASE_URL=url) as running:
        running.await_start()
        running.await_decisions(decisions)
        told = running.end()

    verified, log = told_by("verify", "--data", tmp_path, DATABASE_URL=url)
    replayed, again = told_by("replay", "--data", tmp_path, DATABASE_URL=url)

    assert (verified, replayed, again["mismatches"]) == (0, 0, 0)
    assert log["entries"] >= again["decisions"] == told["decisions"] >= decisions
    assert again["events"] >= told["position"] > 40
    assert not (tmp_path / "joulie.db").exists()


@pytest.mark.long
def test_a_running_demo_can_be_replayed(tmp_path: Path) -> None:
    with demo(tmp_path, "--nodes", "30", "--speed", "600") as running:
        running.await_decisions(20)
        code, found = told_by("replay", "--data", tmp_path)

    assert (code, found["mismatches"]) == (0, 0)
    assert found["decisions"] >= 20


@pytest.mark.long
def test_a_trace_that_cannot_be_used_stops_the_demo_before_it_starts(tmp_path: Path) -> None:
    done = joulie("demo", "--trace", tmp_path / "none.csv", "--data", tmp_path / "data")

    assert done.returncode == 2
    assert "none.csv cannot be used" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.long
def test_one_changed_byte_is_found_and_its_entry_named(past: Past, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    subprocess.run(["cp", "-r", str(past[0]), str(changed)], check=True)
    flip_a_byte_of_the_body(changed / "joulie.db", entry=20)

    code, found = told_by("verify", "--data", changed)

    assert (code, found["first_bad"]) == (1, 20)
    assert found["what"] == "the body of entry 20 does not match its hash"


def test_a_log_cut_off_at_its_end_is_found_by_anchored_heads(past: Past, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    subprocess.run(["cp", "-r", str(past[0]), str(cut)], check=True)
    with edited(cut / "joulie.db") as db:
        for table in ("decision", "head"):
            db.execute(f"DROP TRIGGER {table}_no_delete")
            db.execute(f"DELETE FROM {table} WHERE pos > 30")

    code, found = told_by("verify", "--data", cut)

    assert (code, found["first_bad"]) == (1, 31)
    assert "the log ends at 30" in found["what"]


def test_a_changed_twin_is_found_by_replay(past: Past, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    subprocess.run(["cp", "-r", str(past[0]), str(changed)], check=True)
    with edited(changed / "joulie.db") as db:
        db.execute("UPDATE node_twin SET body = (SELECT max(body) FROM node_twin)")

    code, found = told_by("replay", "--data", changed)

    assert (code, found["mismatches"]) == (1, 1)
    assert found["told"][0]["what"] == "the rows of node differ from the folded state"


@pytest.mark.long
def test_a_demo_resumes_from_the_stored_state(past: Past, tmp_path: Path) -> None:
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", str(past[0]), str(data)], check=True)
    with demo(data, "--nodes", "40") as running:
        running.await_start()
        running.await_decisions(past[1]["decisions"] + 20)
        running.wait_until(lambda: knows_where_all_are(data))
        status_code, status = told_by("status", "--data", data)
        told = running.end()

    code, found = told_by("replay", "--data", data)

    assert status_code == 0
    assert [part["alive"] for part in status["parts"]] == [True] * 7
    assert status["readings"]["nodes"] == 40
    assert told["position"] > past[1]["position"]
    assert (code, found["mismatches"], found["decisions"]) == (0, 0, told["decisions"])


@pytest.mark.long
def test_killing_every_part_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--nodes", "30") as running:
        running.await_decisions(10)
        for part in ("projector", "extender", "projector", "nats-server", "operator", "projector"):
            running.kill(part)
            running.await_decisions(running.counts().answers + 6)
        told = running.end(signal.SIGTERM)

    verified, log = told_by("verify", "--data", tmp_path)
    replayed, again = told_by("replay", "--data", tmp_path)
    proved, proofs = told_by("prove", "--missing", "--data", tmp_path)

    assert (verified, replayed) == (0, 0)
    assert (again["mismatches"], again["decisions"]) == (0, told["decisions"])
    assert log["entries"] >= told["decisions"]
    assert (proved, proofs["items"], "unkept" in log) == (0, [], False)


@pytest.mark.drill
def test_a_projector_that_is_killed_twenty_times_in_a_row_loses_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--nodes", "50") as running:
        running.await_decisions(10)
        for _ in range(20):
            running.kill("projector")
        running.await_decisions(running.counts().answers + 10)
        told = running.end()

    verified, _ = told_by("verify", "--data", tmp_path)
    replayed, again = told_by("replay", "--data", tmp_path)

    assert (verified, replayed, again["mismatches"]) == (0, 0, 0)
    assert again["decisions"] == told["decisions"]


@pytest.mark.long
def test_a_directory_in_use_is_refused_with_a_way_out(past: Past) -> None:
    lock = DataDirectory(past[0]).lock()
    done = joulie("demo", "--headless", "--data", past[0])
    lock.release()

    assert done.returncode == 2
    assert done.stderr == (
        f"joulie demo: Something already runs in {past[0]}. "
        f"`joulie status --data {past[0]}` shows what; stop it, or choose another directory "
        "with --data.\n"
    )


def test_an_archive_run_waits_for_a_command_that_reads_and_reports_it(
    past: Past, tmp_path: Path
) -> None:
    lock = DataDirectory(past[0]).lock()
    words = ["archive", "--dir", tmp_path / "kept", "--now", "--data", past[0]]
    command = [sys.executable, "-m", "joulie_cli.main", *map(str, words)]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    told = waiting.stderr.readline()
    kept_meanwhile = list((tmp_path / "kept").glob("*/*/*/*"))
    lock.release()
    out, rest = waiting.communicate(timeout=PATIENCE_S)

    assert f"Another command reads the facts in {past[0]}: waiting for it to end" in told
    assert (kept_meanwhile, waiting.returncode, rest) == ([], 0, "")
    assert "read back and compared: facts up to position" in out


def test_an_archive_writes_its_keys_through_no_link(past: Past, tmp_path: Path) -> None:
    others, kept = tmp_path / "others", tmp_path / "kept"
    others.write_text("of others")
    kept.mkdir()
    (kept / "head.pub").symlink_to(others)
    done = joulie("archive", "--dir", kept, "--now", "--data", past[0])

    assert done.returncode == 0, done.stderr
    assert others.read_text() == "of others"
    assert (kept / "head.pub").read_bytes() == (past[0] / "head.pub").read_bytes()


@pytest.mark.parametrize("command", ["status", "verify", "replay"])
def test_a_directory_without_data_is_reported(command: str, tmp_path: Path) -> None:
    done = joulie(command, "--data", tmp_path / "none")

    assert done.returncode == 2
    assert f"There is no Joulie data in {tmp_path / 'none'}." in done.stderr


def test_all_invalid_settings_are_reported_at_once_before_the_start(tmp_path: Path) -> None:
    wrong = {"SCORE_TREND_SCALE": "0", "STATIC_HP_FRAC": "lots", "RECONCILE_INTERVAL": "soon"}

    done = joulie("demo", "--data", tmp_path, **wrong)

    assert done.returncode == 2
    assert [name for name in wrong if f"{name}=" in done.stderr] == list(wrong)
    assert not (tmp_path / "joulie.db").exists()


def how_nice(pids: dict[str, int]) -> dict[str, int]:
    """Without processes that have ended: `joulie up` may have restarted one."""
    found = {}
    for name, pid in pids.items():
        with contextlib.suppress(ProcessLookupError):
            found[name] = os.getpriority(os.PRIO_PROCESS, pid)
    return found


def all_but_the_extender_yield(patience: dict[str, int]) -> bool:
    others = [value for name, value in patience.items() if name != "extender"]
    return "extender" in patience and len(others) == 5 and min(others) > patience["extender"]


@pytest.mark.long
def test_up_without_a_cluster_runs_and_reports_that_none_is_watched(tmp_path: Path) -> None:
    """And all but the extender give way, once they have started."""
    pids: dict[str, int] = {}
    patience: dict[str, int] = {}

    def have_started() -> bool:
        """One reading counts for all: `joulie up` may restart a part between two of them."""
        nonlocal pids, patience
        pids = up.pids()
        patience = how_nice(pids)
        parts = {"nats-server", "projector", "operator", "extender", "console", "ledger"}
        return set(pids) == parts and all_but_the_extender_yield(patience)

    with running("up", tmp_path, KUBECONFIG="") as up:
        up.wait_until(have_started)
        up.process.send_signal(signal.SIGINT)
        _, err = up.process.communicate(timeout=PATIENCE_S)

    assert up.process.returncode == 130
    assert "For a cluster give --kubeconfig FILE" in err
    assert [name for name, pid in pids.items() if is_alive(pid)] == []
    assert min(patience, key=patience.__getitem__) == "extender"
    even = {patience[name] for name in ("projector", "nats-server", "ledger", "console")}
    assert len(even) == 1
    assert max(even) < patience["operator"]


def test_a_part_without_a_broker_names_the_address_it_tried(tmp_path: Path) -> None:
    joulie("migrate", "--data", tmp_path)

    done = joulie(
        "projector", "--data", tmp_path, NATS_URL="nats://127.0.0.1:1", METRICS_ADDR="127.0.0.1:0"
    )

    assert done.returncode == 2
    assert "No NATS server answers at nats://127.0.0.1:1" in done.stderr
