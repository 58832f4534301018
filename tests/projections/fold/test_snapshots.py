"""The whole world at a position, packed: there whole or not at all, and checked when used."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from joulie_bus.errors import Fenced, StateDamaged
from joulie_bus.testing import ANY_FACTS, any_fact, node_seen, noon, power, records, until
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.fold.snapshots import Snapshot, frozen_state_of, pack, unpack
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
from joulie_projections.view.view import View

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


def folded(cluster_state: ClusterState, *numbers: int) -> SequencedBatch:
    told = records(*(any_fact(number) for number in numbers))
    created = {record.stream: "then" for record in told}
    done = sequence(cluster_state, FoldCursor(0, {}, empty_digests(), b""), told, created, noon())
    done.draft.commit()
    return done


@given(st.lists(st.integers(0, ANY_FACTS - 1), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
def test_what_is_unpacked_is_what_was_packed(numbers: list[int]) -> None:
    cluster_state = ClusterState()
    cursor = folded(cluster_state, *numbers).cursor

    again, rows = unpack(pack(frozen_state_of(cluster_state, cursor), noon()))

    assert again == cursor
    assert tables_of(cluster_state_of(rows)) == tables_of(cluster_state)


def test_a_moment_stays_as_it_was_while_the_cluster_state_goes_on() -> None:
    cluster_state = ClusterState()
    moment = frozen_state_of(cluster_state, folded(cluster_state, 1, 2, 3).cursor)
    before = pack(moment, noon())
    folded(cluster_state, 4, 5, 6)

    assert pack(moment, noon()) == before


@pytest.mark.parametrize("part", ["body", "digest"])
def test_a_snapshot_that_was_changed_is_not_believed(part: str) -> None:
    cluster_state = ClusterState()
    made = pack(frozen_state_of(cluster_state, folded(cluster_state, 1).cursor), noon())
    changed = made._replace(**{part: getattr(made, part)[:-1] + b"?"})

    with pytest.raises(StateDamaged, match="The snapshot at position 1"):
        unpack(changed)


def test_rows_that_do_not_add_up_are_not_believed() -> None:
    cluster_state = ClusterState()
    moment = frozen_state_of(cluster_state, folded(cluster_state, *range(9)).cursor)
    forged = moment._replace(tables={**moment.tables, "node": {}, "pod": {}, "producer": {}})

    with pytest.raises(StateDamaged):
        unpack(pack(forged, noon()))


# --- kept -------------------------------------------------------------------------------------


@pytest.fixture
def store(writer: Engine) -> Store:
    made = Store(writer)
    made.acquire("me", noon(10), noon(), "first", lambda _: False)
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


def test_a_snapshot_of_other_folds_is_of_no_use(store: Store, place: Place) -> None:
    store.save_snapshot(1, snapshot(10), at_most=9)
    store.save_snapshot(1, snapshot(20, "another"), at_most=9)

    with History.of(place) as history:
        assert history.snapshot_before(99) == snapshot(10)


def test_whoever_is_no_longer_the_projector_keeps_nothing(store: Store) -> None:
    with pytest.raises(Fenced):
        store.save_snapshot(7, snapshot(10), at_most=1)

    assert store.newest_snapshot() == 0


def test_a_crash_while_keeping_one_leaves_the_old_ones(store: Store, writer: Engine) -> None:
    store.save_snapshot(1, snapshot(10), at_most=1)

    @event.listens_for(writer, "commit")
    def pull_the_plug(_: object) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        store.save_snapshot(1, snapshot(20), at_most=1)
    event.remove(writer, "commit", pull_the_plug)

    assert store.newest_snapshot() == 10


# --- by the projector -------------------------------------------------------------------------


@pytest.fixture
async def kept(projecting: Projecting, viewing: Viewing, publish: Publish, place: Place) -> Place:
    async with projecting(snapshot_every=10, snapshots=2), viewing() as view:
        for watts in range(5):
            await publish(*(power(f"n{number}", watts) for number in range(9)), node_seen("n"))
            await view.wait_for((watts + 1) * 10, 5)
        await until(lambda: positions(place)[-1:] != [], 5)
    return place


def positions(place: Place) -> list[int]:
    with History.of(place) as history:
        return history.snapshot_positions()


@pytest.mark.anyio
async def test_the_projector_keeps_one_now_and_then_and_it_is_the_cluster_state_of_its_position(
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
