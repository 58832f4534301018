"""A row has a name only together with a position."""

import random

import numpy as np
import pytest

from joulie_bus.events import Candidates
from joulie_projections.fold.node_facts import drop_node, node_of
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import (
    ObservedNames,
    RowName,
    RowNames,
    RowSpan,
    names_node,
    row_names_in,
    unknown_node,
)

MOVES = [RowName(1, 0, "a"), RowName(1, 1, "b"), RowName(5, 0, "c"), RowName(9, 0, "a")]
NAMES = RowNames(0, 10, MOVES)


def candidates(*ordinals: int, strangers: tuple[str, ...] = ()) -> Candidates:
    return Candidates(ordinals=np.array(ordinals, "<i4").tobytes(), strangers=list(strangers))


def named(names: RowNames, position: int, *ordinals: int) -> list[str]:
    return names.at(position).of(candidates(*ordinals))


@pytest.mark.parametrize(
    ("position", "expected"),
    [(1, ["a", "b"]), (4, ["a", "b"]), (5, ["c", "b"]), (8, ["c", "b"]), (9, ["a", "b"])],
)
def test_a_reused_row_has_the_name_of_each_position(position: int, expected: list[str]) -> None:
    assert named(NAMES, position, 0, 1) == expected


def test_names_are_right_in_any_order_of_the_questions() -> None:
    answers = [named(NAMES, position, 0) for position in (9, 1, 5, 4, 8, 10)]

    assert answers == [["a"], ["a"], ["c"], ["a"], ["c"], ["a"]]


@pytest.mark.parametrize("position", [0, 11])
def test_a_name_at_a_position_without_evidence_is_unknown(position: int) -> None:
    assert named(NAMES, position, 0) == [unknown_node(0)]
    assert not NAMES.at(position).include(candidates(0))


def test_an_ambiguous_row_is_unknown_until_its_next_name() -> None:
    names = RowNames(0, 10, [RowName(1, 0, "a"), RowName(3, 0, ""), RowName(6, 0, "b")])

    assert [named(names, at, 0)[0] for at in (2, 3, 5, 6)] == [
        *("a", unknown_node(0), unknown_node(0), "b")
    ]
    assert names.nodes() == {"a", "b"}


def test_strangers_keep_the_names_of_the_request() -> None:
    found = NAMES.at(5).of(candidates(-1, 1, -1, strangers=("x", "y")))

    assert found == ["x", "b", "y"]
    assert NAMES.at(5).include(candidates(-1, 1, strangers=("x",)))


def test_extended_names_equal_names_that_were_read_at_once() -> None:
    longer = RowNames(0, 4, MOVES[:2]).extended(MOVES[2:], 10)

    assert [named(longer, at, 0, 1) for at in range(12)] == [
        named(NAMES, at, 0, 1) for at in range(12)
    ]
    assert len(longer) == len(NAMES)


def test_extending_leaves_the_shorter_names_as_they_are() -> None:
    short = RowNames(0, 4, MOVES[:2])
    short.extended(MOVES[2:], 10)

    assert named(short, 4, 0) == ["a"]
    assert named(short, 5, 0) == [unknown_node(0)]


def test_a_node_has_the_rows_of_its_times() -> None:
    assert NAMES.spans_of("c") == [RowSpan(5, 9, 0)]
    spans = NAMES.spans_of("a")
    assert [names_node(candidates(0), view, "a", spans) for view in (4, 5, 8, 9)] == [
        *(True, False, False, True)
    ]
    assert names_node(candidates(-1, strangers=("a",)), 5, "a", spans)


def test_a_commit_names_rows_only_of_nodes_that_got_them() -> None:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    for name in ("a", "b"):
        draft.nodes.put(name, node_of(draft, name, 1))
    assert row_names_in(draft.changed(), 7) == [RowName(7, 0, "a"), RowName(7, 1, "b")]
    draft.commit()

    draft = Draft(cluster_state)
    drop_node(draft, "a")
    draft.nodes.put("c", node_of(draft, "c", 2))  # takes the row of `a`
    draft.nodes.put("a", node_of(draft, "a", 2))  # which is recreated in the same commit
    draft.nodes.put("b", node_of(draft, "b", 2))
    assert row_names_in(draft.changed(), 8) == [RowName(8, 2, "a"), RowName(8, 0, "c")]


def test_observed_names_are_those_of_each_observed_position() -> None:
    chance, truth, observed = random.Random(7), dict[int, dict[str, int]](), ObservedNames(10_000)
    rows: dict[str, int] = {}
    for position in range(1, 300):
        if chance.random() < 0.5:  # one node goes, another one takes its row
            rows = dict(rows)
            row = rows.pop(chance.choice(list(rows))) if len(rows) > 5 else len(rows) + 1
            rows[f"n{position}"] = row
        assert observed.observe(position, TwinColumns(rows, {}, 0))
        truth[position] = rows

    for position, held in truth.items():
        assert named(observed.names, position, *(row - 1 for row in held.values())) == list(held)


def test_observed_names_are_bounded_and_older_ones_become_unknown() -> None:
    observed = ObservedNames(most=3)
    for position in range(1, 9):
        observed.observe(position, TwinColumns({f"n{position}": 1}, {}, 0))

    assert named(observed.names, 8, 0) == ["n8"]
    assert named(observed.names, 1, 0) == [unknown_node(0)]
    assert len(observed.names) <= 3


def test_an_earlier_position_with_other_rows_is_refused() -> None:
    observed = ObservedNames(most=100)
    now = TwinColumns({"b": 1}, {}, 0)

    assert observed.observe(5, now)
    assert observed.observe(4, now)
    assert not observed.observe(3, TwinColumns({"a": 1}, {}, 0))
    assert named(observed.names, 5, 0) == ["b"]
