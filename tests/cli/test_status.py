import contextlib
import math
import os
import re
import shutil
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

import joulie_migrations
from audit_kit import small_log_in
from joulie_answers.here import status_of
from joulie_answers.readers.gauges import gauges_of
from joulie_answers.schema.responses import StreamSize
from joulie_answers.text.status import status_text
from joulie_bus.runtime import metrics
from joulie_bus.runtime.ports import free_port
from joulie_projections.component import room
from joulie_projections.component.data_directory import DataDirectory, Running
from joulie_projections.store import database
from joulie_projections.store.lease_owner import new_owner
from joulie_projections.store.store import Store
from joulie_projections.store.tables import batch, energy_state

NOW = 10**18


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


def test_sizes_come_from_the_projector(tmp_path: Path) -> None:
    data, address = DataDirectory(tmp_path), f"127.0.0.1:{free_port()}"
    metrics.serve("127.0.0.1", int(address.rpartition(":")[2]), "projector")
    metrics.STREAM_BYTES.labels(stream="JOULIE_OBS").set(100)
    metrics.STREAM_MAX_BYTES.labels(stream="JOULIE_OBS").set(400)
    metrics.STREAM_DAYS_LEFT.labels(stream="JOULIE_OBS").set(3)
    metrics.STREAM_KEPT_SECONDS.labels(stream="JOULIE_OBS").set(60)
    metrics.DATABASE_BYTES.set(500)
    with data_with_run_file(data, os.getpid(), address, "projector"):
        found = status_of(data, NOW, 300).room

    assert found.streams["JOULIE_OBS"] == StreamSize(
        bytes=100, max_bytes=400, days_left=3.0, kept_s=60.0
    )
    assert found.database_bytes == 500


def test_the_disk_of_the_data_is_looked_at_and_not_taken_from_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataDirectory(tmp_path)
    with data_with_run_file(data, os.getpid(), f"127.0.0.1:{free_port()}"):
        found = status_of(data, NOW, 300).room
        monkeypatch.setattr(room, "FULL_BYTES", 2**62)
        full = status_of(data, NOW, 300)

    assert found.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.5)
    assert found.full == ""
    assert full.stale[0].startswith(f"the disk of {data.path} is full (")


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
    metrics.VIEW_PAUSED.set(0)
    with data_with_run_file(data, pid, address):
        found = status_of(data, NOW, 300)

    assert found.stale == [text.format(logs=data.logs) for text in stale]


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
        engine.dispose()
        ledger = database.ledger(data.database)
        with ledger.begin() as db:
            if folded_to:
                blank = {"name": "energy", "digest": b"", "body": b""}
                db.execute(energy_state.insert().values(position=folded_to, **blank))
        ledger.dispose()

        assert status_of(data, NOW, 300).stale == stale


def batch_row(last: int, at: int) -> dict[str, object]:
    blank = dict.fromkeys(("ranges", "facts_hash", "state_digest", "prev", "head"), b"")
    return {"p_from": last - 9, "p_to": last, "committed_at": at, "fold_version": "1", **blank}


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


def lead(engine: Engine, behind_s: float, lease_s: float = 30.0) -> int:
    store = Store(engine)
    held = store.acquire(new_owner(), lease_s, "i", lambda _: True)
    assert held is not None
    store.renew(held.epoch, lease_s, held.position, lambda: behind_s)
    return held.epoch


@pytest.mark.anyio
async def test_components_that_run_one_by_one_are_shown_by_the_lease_and_their_answers(
    alone: tuple[DataDirectory, Engine],
) -> None:
    data, engine = alone
    lead(engine, behind_s=0.3)

    found = status_of(data, time.time_ns(), 300)

    elsewhere = found.elsewhere
    assert found.running
    assert elsewhere is not None
    assert elsewhere.projector.behind_s == pytest.approx(0.3, abs=1.5)
    assert [(each.name, each.answers) for each in elsewhere.extenders] == [("extender-0", 8)]
    lines = status_text(found).splitlines()
    assert lines[0].startswith("health       ")
    assert lines[1] == "running, not by joulie up"
    assert lines[2].startswith(f"  projector   process {os.getpid()} of boot ")
    assert lines[3].startswith("  extender-0  last answer in the log ")
    assert not [line for line in lines if "no projector leads" in line]


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

    found = status_of(data, time.time_ns(), 300).stale

    assert re.sub(r"6\d\.\d s", "60.0 s", found[0]) == stale


@pytest.mark.anyio
@pytest.mark.parametrize("is_released", [False, True])
async def test_no_projector_leads_once_the_lease_has_ended(
    is_released: bool, alone: tuple[DataDirectory, Engine]
) -> None:
    data, engine = alone
    epoch = lead(engine, behind_s=0.3, lease_s=-35.0)
    if is_released:
        Store(engine).release(epoch)

    found = status_of(data, time.time_ns(), 300)

    assert (found.running, found.elsewhere) == (False, None)
    begins = (
        "no projector leads: the last one has ended"
        if is_released
        else ("no projector leads since 35.")
    )
    assert found.stale[0].startswith(begins)
