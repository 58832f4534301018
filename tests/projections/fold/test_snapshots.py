"""Snapshots of the state: packing, storage, and validation when they are read."""

import asyncio
import hashlib
import threading
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from bus_kit import ANY_FACTS, any_fact, node_seen, noon, power, records, until
from joulie_bus.errors import Fenced, StateDamaged
from joulie_projections.fold import snapshots
from joulie_projections.fold.commit import Snapshot
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.fold.snapshots import frozen_state_of, pack, unpack
from joulie_projections.history.history import History
from joulie_projections.state.rows import (
    cluster_state_of,
    digests_of,
    empty_digests,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.store.tables import checkpoint
from joulie_projections.view.view import View

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


def folded(cluster_state: ClusterState, *numbers: int) -> SequencedBatch:
    sent = records(*(any_fact(number) for number in numbers))
    created = {record.stream: "then" for record in sent}
    result = sequence(cluster_state, FoldCursor(0, {}, empty_digests(), b""), sent, created, noon())
    result.draft.commit()
    return result


@given(st.lists(st.integers(0, ANY_FACTS - 1), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
def test_unpacking_gives_the_packed_state(numbers: list[int]) -> None:
    cluster_state = ClusterState()
    cursor = folded(cluster_state, *numbers).cursor

    unpacked, rows = unpack(pack(frozen_state_of(cluster_state, cursor), noon()))

    assert unpacked == cursor
    assert tables_of(cluster_state_of(rows)) == tables_of(cluster_state)


def test_a_frozen_state_does_not_change_with_the_cluster_state() -> None:
    cluster_state = ClusterState()
    frozen = frozen_state_of(cluster_state, folded(cluster_state, 1, 2, 3).cursor)
    before = pack(frozen, noon())
    folded(cluster_state, 4, 5, 6)

    assert pack(frozen, noon()) == before


@pytest.mark.parametrize("part", ["body", "digest"])
def test_a_modified_snapshot_is_rejected(part: str) -> None:
    cluster_state = ClusterState()
    made = pack(frozen_state_of(cluster_state, folded(cluster_state, 1).cursor), noon())
    changed = made._replace(**{part: getattr(made, part)[:-1] + b"?"})

    with pytest.raises(StateDamaged, match="The snapshot at position 1"):
        unpack(changed)


def test_a_snapshot_that_inflates_without_end_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LARGEST_BODY", 1 << 20)
    body = zlib.compress(bytes(1 << 24))
    bomb = Snapshot(1, CODE_VERSION, noon(), hashlib.sha256(body).digest(), body)

    with pytest.raises(StateDamaged, match="The snapshot at position 1"):
        unpack(bomb)


def test_rows_that_do_not_match_the_digest_are_rejected() -> None:
    cluster_state = ClusterState()
    frozen = frozen_state_of(cluster_state, folded(cluster_state, *range(9)).cursor)
    forged = frozen._replace(tables={**frozen.tables, "node": {}, "pod": {}, "producer": {}})

    with pytest.raises(StateDamaged):
        unpack(pack(forged, noon()))


# --- storage ----------------------------------------------------------------------------------


@pytest.fixture
def store(writer: Engine) -> Store:
    made = Store(writer)
    made.acquire("me", 10, "first", lambda _: False)
    with writer.begin() as db:
        db.execute(checkpoint.update().values(position=100))
    return made


def snapshot(position: int, fold_version: str = CODE_VERSION) -> Snapshot:
    return Snapshot(position, fold_version, noon(), b"digest", b"body")


def test_the_newest_snapshots_are_kept(store: Store, place: Place) -> None:
    for position in (10, 20, 30, 40):
        store.save_snapshot(1, snapshot(position), at_most=3)

    with History.of(place) as history:
        assert history.snapshot_positions() == [20, 30, 40]
        assert history.snapshot_before(39) == snapshot(30)
        assert history.snapshot_before(19) is None
    assert store.newest_snapshot() == 40


def test_a_snapshot_of_another_fold_version_is_not_used(store: Store, place: Place) -> None:
    store.save_snapshot(1, snapshot(10), at_most=9)
    store.save_snapshot(1, snapshot(20, "another"), at_most=9)

    with History.of(place) as history:
        assert history.snapshot_before(99) == snapshot(10)
    assert store.newest_snapshot() == 0  # so the projector makes the next one at once


def test_a_fenced_projector_stores_no_snapshot(store: Store) -> None:
    with pytest.raises(Fenced):
        store.save_snapshot(7, snapshot(10), at_most=1)

    assert store.newest_snapshot() == 0


def test_a_failed_commit_of_a_snapshot_keeps_the_earlier_ones(store: Store, writer: Engine) -> None:
    store.save_snapshot(1, snapshot(10), at_most=1)

    @event.listens_for(writer, "commit")
    def fail(_: object) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        store.save_snapshot(1, snapshot(20), at_most=1)
    event.remove(writer, "commit", fail)

    assert store.newest_snapshot() == 10


# --- by the projector -------------------------------------------------------------------------


@pytest.fixture
async def kept(projecting: Projecting, viewing: Viewing, publish: Publish, place: Place) -> Place:
    async with projecting(snapshot_every=10, snapshots=2), viewing() as view:
        for watts in range(5):
            await publish(*(power(f"n{number}", watts) for number in range(9)), node_seen("n"))
            await view.wait_for((watts + 1) * 10, 60)
        await until(lambda: positions(place)[-1:] != [])
    return place


@pytest.mark.anyio
async def test_one_snapshot_is_packed_at_a_time_and_the_next_one_follows(
    projecting: Projecting,
    viewing: Viewing,
    publish: Publish,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packing, may_end, pack = list[int](), threading.Event(), snapshots.pack

    def slowly(frozen: snapshots.FrozenState, now: int) -> Snapshot:
        packing.append(frozen.cursor.position)
        may_end.wait()
        return pack(frozen, now)

    monkeypatch.setattr(snapshots, "pack", slowly)
    async with projecting(snapshot_every=1), viewing() as view:
        for number in range(1, 8):
            await publish(power("n", number))
            await view.wait_for(number, 60)
        during = len(packing)
        may_end.set()
        await until(lambda: positions(place) != [])
        await publish(power("n", 8))
        await until(lambda: len(positions(place)) == 2)

    assert during == 1


def positions(place: Place) -> list[int]:
    with History.of(place) as history:
        return history.snapshot_positions()


@pytest.mark.anyio
async def test_the_projector_stores_snapshots_that_match_the_manifest_of_their_position(
    kept: Place,
) -> None:
    found = positions(kept)

    assert 1 <= len(found) <= 2
    with History.of(kept) as history:
        made = history.snapshot_before(found[-1])
        digests = {m.p_to: m.state_digest for m in history.manifests()}
    assert made is not None
    cursor, rows = unpack(made)
    assert digests_of(rows) == cursor.digests
    assert state_digest(cursor.digests) == digests[cursor.position]
