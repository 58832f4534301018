import contextlib
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

import joulie_migrations
from audit_kit import small_log_in
from joulie_bus.runtime import metrics
from joulie_bus.runtime.ports import free_port
from joulie_cli.ask.status import (
    StalenessLimits,
    _figures,
    _part_warnings,
    _projector_warnings,
    as_text,
    status_of,
)
from joulie_cli.supervisor.data_directory import DataDirectory, Running
from joulie_cli.supervisor.gauges import gauges_of, parsed
from joulie_projections.store import database
from joulie_projections.store.lease_owner import new_owner
from joulie_projections.store.store import Store
from joulie_projections.store.tables import batch, energy_state

NOW = 10**18
PART = {"name": "extender", "pid": 7, "alive": True, "restarts": 0}
STATUS = {
    "up_s": 200.0,
    "parts": [],
    "elsewhere": {},
    "running": True,
    "position": 12,
    "commit_age_s": 0.25,
    "decisions": 4,
    "preset": None,
    "entries": 6,
    "signed_to": 5,
    "readings": {"nodes": 3, "asleep": 0, "fresh": 2, "oldest_s": 7.5},
    "quarantined": 0,
    "resting": [],
    "room": {"streams": {}, "database_bytes": None, "free_bytes": None},
    "data": "joulie-data",
    "endpoints": {"broker": "nats://b", "extender": "http://e"},
    "stale": [],
}


@contextlib.contextmanager
def data_with_run_file(
    data: DataDirectory, pid: int, address: str, name: str = "extender"
) -> Generator[None, None, None]:
    """A data directory in which the part runs."""
    data.create()
    engine = database.migrator(data.database)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    lock = data.lock()
    parts, metrics = {name: pid}, {name: address}
    data.write_run_file(
        Running(pid=os.getpid(), nats_url="", endpoints={}, parts=parts, metrics=metrics)
    )
    yield
    lock.release()


def test_the_status_counts_sleeping_nodes_if_there_are_any() -> None:
    readings = {"nodes": 3, "asleep": 2, "fresh": 3, "oldest_s": 7.5}

    assert "\nasleep       2 of 3 nodes\n" in as_text(STATUS | {"readings": readings})
    assert "asleep" not in as_text(STATUS)


def test_the_status_shows_positions_lags_and_ages() -> None:
    projector = PART | {"name": "projector", "position": 12, "lag_events": 3, "lag_s": 0.008}
    extender = PART | {
        "position": 11,
        "view_age_s": 0.1,
        "view_behind_s": 0.25,
        "restarts": 2,
    }

    assert as_text(STATUS | {"parts": [projector, extender]}) == (
        "running for 3 min\n"
        "  projector   pid 7       at 12         up to 8 ms behind, 3 events waiting\n"
        "  extender    pid 7       at 11         up to 250 ms behind, projector seen 100 ms ago"
        "   restarted 2 time(s)\n"
        "position     12, last commit 250 ms ago\n"
        "decisions    4 (6 entries, signed up to 5)\n"
        "readings     2 of 3 nodes fresh, the oldest 7.5 s old\n"
        "quarantined  0\n"
        "broker       nats://b\n"
        "extender     http://e\n"
        "data         joulie-data"
    )


def test_the_status_names_the_server_whose_copy_lacks_messages_and_the_repair() -> None:
    sample = 'joulie_broker_missing_messages{server="nats 1",stream="JOULIE_OBS"} 1012.0'
    gauges = parsed(f"# TYPE joulie_broker_missing_messages gauge\n{sample}\n")
    projector = PROJECTOR | _figures("projector", gauges)

    (warning,) = _projector_warnings(projector)
    assert warning.startswith(
        "broker: the copy of server nats 1 lacks messages (at least 1012 of JOULIE_OBS), "
    )
    assert "delete its JetStream store" in warning


def test_a_part_without_a_view_has_no_age() -> None:
    waiting = PART | {"position": 0, "view_age_s": metrics.VIEW_NEVER_S}
    text = as_text(STATUS | {"parts": [waiting]})

    assert "  extender    pid 7       at 0          no view yet\n" in text
    assert _part_warnings([waiting], Path("logs")) == [
        "extender has received no heartbeat of the projector yet"
    ]


PROJECTOR = PART | {
    "name": "projector",
    "position": 12,
    "lag_events": 4000,
    "lag_s": 60.0,
    "broker_silent_s": 0.2,
}
VIEW = PART | {"position": 12, "view_age_s": 0.1, "view_behind_s": 60.3}


def test_a_projector_that_is_behind_is_reported_and_its_readers_are_not_blamed() -> None:
    assert _part_warnings([VIEW, PROJECTOR], Path("logs")) == [
        "projector is up to 60.0 s behind the broker: 4000 facts are not folded yet"
    ]


def test_a_reader_that_is_behind_its_projector_is_reported() -> None:
    projector = PROJECTOR | {"lag_s": 0.3}

    assert _part_warnings([VIEW, projector], Path("logs")) == [
        "extender is up to 60.3 s behind the broker, and the projector 300 ms"
    ]


def test_a_reader_beyond_the_bound_is_reported_if_the_projector_is_not() -> None:
    parts = [PROJECTOR | {"lag_s": 1.9}, VIEW | {"view_behind_s": 2.6}]

    assert _part_warnings(parts, Path("logs")) == [
        "extender is up to 2.6 s behind the broker, and the projector 1.9 s"
    ]


def test_a_broker_without_its_majority_is_reported_as_the_cause() -> None:
    projector = PROJECTOR | {"broker_silent_s": 4.0}

    assert _part_warnings([VIEW, projector], Path("logs")) == [
        "broker: the projector has read no answer of a majority for 4.0 s: "
        "it is down, is not reached, or has no CPU",
        "projector is up to 60.0 s behind the broker: 4000 facts are not folded yet",
    ]


def test_a_projector_that_reads_answers_late_is_reported_although_no_fact_waits() -> None:
    projector = PROJECTOR | {"lag_events": 0, "lag_s": 3.0}

    assert _part_warnings([projector], Path("logs")) == [
        "projector is up to 3.0 s behind the broker: it reads answers of the broker late"
    ]


def test_a_part_that_keeps_up_is_not_reported() -> None:
    parts = [PROJECTOR | {"lag_s": 0.4}, VIEW | {"view_behind_s": 0.6}]

    assert _part_warnings(parts, Path("logs")) == []


def test_stale_data_is_reported() -> None:
    text = as_text(
        STATUS | {"up_s": None, "running": False, "stale": ["nothing runs: the data is 2 h old"]}
    )

    assert text.startswith("not running\n")
    assert text.endswith("STALE        nothing runs: the data is 2 h old")


def test_the_status_shows_how_full_the_streams_are_and_when_they_will_be_full() -> None:
    gib = 1024**3
    streams = {
        "JOULIE_TEL": {
            "bytes": 3 * gib,
            "max_bytes": 4 * gib,
            "days_left": None,
            "kept_s": 7200.0,
        },
        "JOULIE_OBS": {"bytes": gib // 4, "max_bytes": gib, "days_left": 41.3, "kept_s": 0.0},
        "JOULIE_PLAN": {"bytes": 2048, "max_bytes": None, "days_left": None, "kept_s": 0.0},
    }
    room = {"streams": streams, "database_bytes": 5 * 1024**2, "free_bytes": 7 * gib}

    assert as_text(STATUS | {"room": room}).splitlines()[5:9] == [
        "JOULIE_TEL   75% of 4.0 GiB, of 2 h",
        "JOULIE_OBS   25% of 1.0 GiB, full in 41 day(s)",
        "JOULIE_PLAN  2 KiB",
        "database     5 MiB, 7.0 GiB free on the disk",
    ]


def test_sizes_come_from_the_projector(tmp_path: Path) -> None:
    data, address = DataDirectory(tmp_path), f"127.0.0.1:{free_port()}"
    metrics.serve("127.0.0.1", int(address.rpartition(":")[2]), "projector")
    metrics.STREAM_BYTES.labels(stream="JOULIE_OBS").set(100)
    metrics.STREAM_MAX_BYTES.labels(stream="JOULIE_OBS").set(400)
    metrics.STREAM_DAYS_LEFT.labels(stream="JOULIE_OBS").set(3)
    metrics.STREAM_KEPT_SECONDS.labels(stream="JOULIE_OBS").set(60)
    metrics.DATABASE_BYTES.set(500)
    metrics.DATA_FREE_BYTES.set(600)
    with data_with_run_file(data, os.getpid(), address, "projector"):
        found = status_of(data, StalenessLimits(NOW, 300))["room"]

    assert found["streams"]["JOULIE_OBS"] == {
        "bytes": 100,
        "max_bytes": 400,
        "days_left": 3.0,
        "kept_s": 60.0,
    }
    assert (found["database_bytes"], found["free_bytes"]) == (500, 600)


@pytest.mark.parametrize(
    ("age", "text"),
    [(0.0, "0 ms"), (1.24, "1.2 s"), (119, "119.0 s"), (7200, "2 h"), (200_000, "2 d")],
)
def test_an_age_has_a_readable_unit(age: float, text: str) -> None:
    assert f"last commit {text} ago" in as_text(STATUS | {"commit_age_s": age})


def test_gauges_are_read_by_part_and_a_silent_part_is_left_out() -> None:
    answers, silent = (f"127.0.0.1:{free_port()}" for _ in range(2))
    metrics.serve("127.0.0.1", int(answers.rpartition(":")[2]), "projector")
    metrics.POSITION.set(41)

    text = gauges_of({"extender": answers, "operator": silent})

    assert set(text) == {"extender"}
    assert text["extender"]["joulie_position"] == 41


@pytest.mark.parametrize(
    ("pid", "age", "stale"),
    [
        (1, 0.1, []),
        (1, 9.0, ["extender received no heartbeat of the projector for 9.0 s"]),
        (2**22 + 1, 0.1, ["extender is down; see {logs}/extender.log"]),
    ],
    ids=["well", "silent projector", "down"],
)
def test_a_part_with_a_fault_is_named(
    pid: int, age: float, stale: list[str], tmp_path: Path
) -> None:
    data = DataDirectory(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    metrics.serve("127.0.0.1", int(address.rpartition(":")[2]), "extender")
    metrics.VIEW_AGE_SECONDS.set(age)
    metrics.VIEW_BEHIND_SECONDS.set(0.2)
    with data_with_run_file(data, pid, address):
        found = status_of(data, StalenessLimits(NOW, 300))

    assert found["stale"] == [text.format(logs=data.logs) for text in stale]


@pytest.mark.parametrize(
    ("folded_to", "stale"),
    [
        (0, ["the ledger lacks facts of the last 60.0 s: figures of energy end before that"]),
        (10, ["the ledger lacks facts of the last 30.0 s: figures of energy end before that"]),
        (20, []),
        (30, []),
    ],
    ids=["never folded", "behind", "has the old facts", "has all facts"],
)
def test_a_ledger_that_lacks_facts_for_more_than_ten_seconds_is_reported(
    folded_to: int, stale: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW)
    data, address = DataDirectory(tmp_path), f"127.0.0.1:{free_port()}"
    with data_with_run_file(data, os.getpid(), address, "nats-server"):
        engine = database.writer(data.database)
        with engine.begin() as db:
            for last, age_s in ((10, 60), (20, 30), (30, 5)):
                db.execute(batch.insert().values(batch_row(last, NOW - age_s * 10**9)))
            if folded_to:
                blank = {"name": "energy", "digest": b"", "body": b""}
                db.execute(energy_state.insert().values(position=folded_to, **blank))
        engine.dispose()

        assert status_of(data, StalenessLimits(NOW, 300))["stale"] == stale


def batch_row(last: int, at: int) -> dict[str, object]:
    blank = dict.fromkeys(("ranges", "merkle_root", "state_digest", "prev", "head"), b"")
    return {"p_from": last - 9, "p_to": last, "committed_at": at, "fold_version": "1", **blank}


def test_pods_that_wait_because_of_a_sample_are_named_with_their_time() -> None:
    resting = [{"pod": f"team/p{number}", "s": 90.0 - number} for number in range(12)]
    text = as_text(STATUS | {"resting": resting})
    assert "resting      12 pod(s), refused on a sample, while a fit node exists: " in text
    assert "team/p0 for 90.0 s, team/p1 for 89.0 s" in text
    assert "team/p9 for 81.0 s, and 2 more" in text
    assert "resting" not in as_text(STATUS)


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncGenerator[tuple[DataDirectory, Engine], None]:
    """The data of components that no `joulie up` has started, after four answers."""
    data = DataDirectory(tmp_path / "data")
    data.create()
    engine = database.migrator(data.database)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    async with small_log_in(data.database, tmp_path):
        engine = database.writer(data.database)
        yield data, engine
        engine.dispose()


def lead(engine: Engine, behind_s: float, lease_s: float = 30.0) -> None:
    store = Store(engine)
    held = store.acquire(new_owner(), lease_s, "i", lambda _: True)
    assert held is not None
    store.renew(held.epoch, lease_s, held.position, lambda: behind_s)


@pytest.mark.anyio
async def test_components_that_run_one_by_one_are_shown_by_the_lease_and_their_answers(
    alone: tuple[DataDirectory, Engine],
) -> None:
    data, engine = alone
    lead(engine, behind_s=0.3)

    found = status_of(data, StalenessLimits(time.time_ns(), 300))

    assert found["running"]
    assert found["elsewhere"]["projector"]["behind_s"] == pytest.approx(0.3, abs=1.5)
    assert [(each["name"], each["answers"]) for each in found["elsewhere"]["extenders"]] == [
        ("extender-0", 8)
    ]
    lines = as_text(found).splitlines()
    assert lines[0] == "running, not by joulie up"
    assert lines[1].startswith(f"  projector   process {os.getpid()} of boot ")
    assert lines[2].startswith("  extender-0  last answer ")
    assert not [line for line in lines if "nothing runs" in line]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("behind_s", "stale"),
    [
        (60.0, "the projector is 60.0 s behind the broker, or does not reach it"),
        (math.inf, "the projector does not know how far it is behind the broker"),
    ],
)
async def test_a_projector_elsewhere_that_is_behind_is_reported(
    behind_s: float, stale: str, alone: tuple[DataDirectory, Engine]
) -> None:
    data, engine = alone
    lead(engine, behind_s)

    found = status_of(data, StalenessLimits(time.time_ns(), 300))["stale"]

    assert re.sub(r"6\d\.\d s", "60.0 s", found[0]) == stale


@pytest.mark.anyio
async def test_nothing_runs_once_the_lease_has_ended(alone: tuple[DataDirectory, Engine]) -> None:
    data, engine = alone
    lead(engine, behind_s=0.3, lease_s=-1.0)

    found = status_of(data, StalenessLimits(time.time_ns(), 300))

    assert (found["running"], found["elsewhere"]) == (False, {})
    assert "nothing runs" in found["stale"][0]
