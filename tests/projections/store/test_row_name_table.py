"""The names of rows are committed with the rows, and never wrong after a gap."""

import pytest
from sqlalchemy import Engine, text

from bus_kit import node_seen, noon, records
from joulie_bus.events import Candidates, Fact, NodeGone
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import FirstBinding
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.history.history import History
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.store.row_name_table import had_row, name_rows_of
from joulie_projections.store.store import Store
from joulie_projections.twin.row_names import NodeNames, RowNames, unknown_node

CREATED = dict.fromkeys(Stream, "then")


@pytest.fixture
def store(writer: Engine) -> Store:
    return Store(writer)


class Projector:
    """Commits facts, one batch at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        lease = store.acquire("me", 10, "first", lambda _: True)
        assert lease is not None
        self._epoch = lease.epoch

    def commit(self, *facts: Fact) -> int:
        held, rows = self._store.load()
        assert held is not None
        cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)
        batch = records(*facts, name=f"sender-{held.position}")
        done = sequence(cluster_state_of(rows), cursor, batch, CREATED, noon()).commit
        self._store.commit(self._epoch, done)
        return done.manifest.p_to


def names(engine: Engine, first: int = 0) -> RowNames:
    with History.on(engine) as history:
        return history.row_names(first)


def name(found: NodeNames, ordinal: int = 0) -> str:
    return found.of(Candidates(ordinals=ordinal.to_bytes(4, "little")))[0]


def test_each_position_has_its_names(store: Store, writer: Engine) -> None:
    projector = Projector(store)
    first = projector.commit(node_seen("a"), node_seen("b"))
    second = projector.commit(NodeGone(node="a"), node_seen("c"))
    third = projector.commit(NodeGone(node="c"), node_seen("a"))

    found = names(writer)
    assert [name(found.at(at)) for at in (first, second, third)] == ["a", "c", "a"]
    assert [name(found.at(at), 1) for at in (first, second, third)] == ["b", "b", "b"]
    assert name(names(writer, second).at(second)) == "c"
    assert name(names(writer, second).at(first)) == unknown_node(0)


def test_names_that_were_read_before_are_extended(store: Store, writer: Engine) -> None:
    projector = Projector(store)
    first = projector.commit(node_seen("a"))
    known = names(writer)
    second = projector.commit(NodeGone(node="a"), node_seen("c"))

    with History.on(writer) as history:
        found = history.row_names_after(known)
    assert [name(found.at(at)) for at in (first, second)] == ["a", "c"]


def test_a_recreated_node_may_have_another_row(store: Store, writer: Engine) -> None:
    projector = Projector(store)
    first = projector.commit(node_seen("a"))
    second = projector.commit(NodeGone(node="a"), node_seen("b"), node_seen("a"))

    found = names(writer)
    assert [name(found.at(at)) for at in (first, second)] == ["a", "b"]
    assert name(found.at(second), 1) == "a"


def test_a_restart_adds_no_names(store: Store, writer: Engine) -> None:
    Projector(store).commit(node_seen("a"))
    before = len(names(writer))
    Projector(store)

    assert len(names(writer)) == before


def test_rows_that_a_rebuild_gives_to_other_nodes_are_unknown_at_its_position(
    store: Store, writer: Engine
) -> None:
    projector = Projector(store)
    first = projector.commit(node_seen("a"), node_seen("b"))
    second = projector.commit(node_seen("c"))
    with writer.begin() as db:  # the rows of another generation
        db.execute(
            text(
                "INSERT INTO node_twin SELECT 2, CASE key WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' "
                "ELSE key END, position, body FROM node_twin"
            )
        )
        name_rows_of(db, 2, second)

    with History.on(writer) as history:
        found = history.row_names()
        later = history.row_names_after(RowNames(0, 0, ()))
    assert [name(found.at(at)) for at in (first, second)] == ["a", unknown_node(0)]
    assert name(found.at(second), 2) == "c"
    assert name(later.at(second)) == unknown_node(0)


def test_a_node_had_a_row_only_from_its_commit_on(store: Store, writer: Engine) -> None:
    projector = Projector(store)
    first = projector.commit(node_seen("a"))
    second = projector.commit(NodeGone(node="a"), node_seen("c"))
    bound_to_c = FirstBinding(second, noon(), "p", "team", "p", "c", 0)

    with writer.connect() as db:
        assert [had_row(db, bound_to_c, at) for at in (first, second)] == [False, True]
