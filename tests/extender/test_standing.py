"""What is carried on from one board to the next equals what is worked out afresh."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import plain
from joulie_bus.testing import NOON, SECOND, ask
from joulie_extender import standing as room
from joulie_extender.standing import Standing, Weights, standing_of
from joulie_projections.board import Board
from joulie_projections.facility import Hall, Halls
from joulie_projections.twins import is_only_read
from joulie_projections.world import NodeState, Sample

T = TypeVar("T")
NODES = 24
KINDS = [ask(cores=2), ask(cores=8, gpus=2, performance=True)]
ROOMS = Halls(("hall-a", "hall-b"), (Hall(), Hall(), Hall()))


class Step(NamedTuple):
    """From one board to the next, and whether anybody looked at that one."""

    changes: dict[int, NodeState | None]
    read: dict[int, tuple[Sample, ...]]  # of nodes that are there
    planned_s: int
    halls: Halls
    later_s: int
    age_ms: int
    is_looked_at: bool


class Course(NamedTuple):
    """A cluster as it is told, board by board."""

    nodes: dict[str, NodeState]
    board: Board
    now: int

    def after(self, step: Step) -> "Course":
        changes = {
            f"n{number}": None if state is None else replace(state, ordinal=number)
            for number, state in step.changes.items()
        }
        for number, samples in step.read.items():
            known = changes.get(f"n{number}") or self.nodes.get(f"n{number}")
            if known is not None:
                changes[f"n{number}"] = replace(known, samples=samples)
        nodes = {**self.nodes, **changes}
        there = {name: state for name, state in nodes.items() if state is not None}
        planned = NOON - step.planned_s * SECOND
        read = {name: state for name, state in changes.items() if self._is_only_read(name, state)}
        others = {name: state for name, state in changes.items() if name not in read}
        board = self.board.updated(others.items(), planned, step.halls)
        board = board.read([state for state in read.values() if state is not None])
        return Course(there, board, self.now + step.later_s * SECOND)

    def _is_only_read(self, name: str, state: NodeState | None) -> bool:
        before = self.nodes.get(name)
        return before is not None and state is not None and is_only_read(before, state)


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """So that most boards can be carried on from the one before."""
    return st.sampled_from([usual] * 8 + [*others])


# Rooms change with the weather, their names do not.
halls = mostly(st.just(ROOMS), plain.buildings).flatmap(lambda strategy: strategy)
steps = st.builds(
    Step,
    st.dictionaries(st.integers(0, NODES - 1), plain.states | st.none(), max_size=2),
    st.dictionaries(st.integers(0, NODES - 1), plain.histories, max_size=2),
    mostly(200, 350),
    halls,
    mostly(0, 1, 120, 301, -50),
    mostly(0, 300_001),
    mostly(True, *[False] * 4),
)
firsts = st.lists(plain.states, min_size=1, max_size=4).map(
    lambda kinds: [kinds[number % len(kinds)] for number in range(NODES)]
)


def same(found: Standing, expected: Standing) -> bool:
    """In every bit of every node's row; the rows of nodes that are gone are nobody's."""
    rows = slice(len(expected.basis))
    pairs = zip(found.columns, expected.columns, strict=True)
    columns = all(one[rows].tobytes() == other.tobytes() for one, other in pairs)
    there = np.arange(len(expected.basis))
    is_as_dear = all(
        found.marginals.of(pod, there).tobytes() == expected.marginals.of(pod, there).tobytes()
        for pod in KINDS * 2
    )
    return columns and is_as_dear and found.cluster == expected.cluster


@settings(deadline=None, max_examples=200)
@given(firsts, st.lists(steps, min_size=3, max_size=6), plain.any_weights)
def test_a_standing_that_is_carried_on_is_the_one_that_is_worked_out_afresh(
    first: list[NodeState], course: list[Step], weights: Weights
) -> None:
    whole: dict[int, NodeState | None] = dict(enumerate(first))
    at = Course({}, Board.empty(), NOON).after(Step(whole, {}, 200, ROOMS, 0, 0, True))
    standing_of(at.board, at.now, 0, weights)
    for step in course:
        at = at.after(step)
        if step.is_looked_at:
            found = standing_of(at.board, at.now, step.age_ms, weights)
            afresh = Board.of(at.nodes, at.board.planned_at, step.halls)
            assert same(found, standing_of(afresh, at.now, step.age_ms, weights))


def profiled(board: Board) -> Board:
    return board.updated([("n3", NodeState(ordinal=3, at=NOON, profile="eco"))], 0)


def measured(board: Board) -> Board:
    return board.read([NodeState(ordinal=3, at=NOON, samples=(Sample(NOON, 250_000),))])


def changed_once(weights: Weights, change: Callable[[Board], Board] = profiled) -> list[int]:
    """How many rows were looked at, for a board and for the next one."""
    whole = {f"n{number}": NodeState(ordinal=number, at=NOON) for number in range(NODES)}
    board = Board.of(whole, 0)
    standing_of(board, NOON, 0, weights)
    later = change(board)
    looked: list[int] = []
    alone = room._alone

    def counted(board: Board, *more: Any) -> tuple[Standing, int]:
        looked.append(len(board.columns["at"]))
        return alone(board, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(room, "_alone", counted)
        standing_of(later, NOON, 0, weights)
    return looked


@pytest.mark.parametrize("change", [profiled, measured])
def test_only_rows_that_changed_are_looked_at_again(change: Callable[[Board], Board]) -> None:
    assert changed_once(Weights(), change) == [1]


def test_a_cooling_model_of_somebody_elses_looks_at_all_rows_again() -> None:
    """It may compare them with each other."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(room, "model_named", lambda _: lambda heat: np.zeros(len(heat.power_w)))
        assert changed_once(Weights(cooling_model="theirs")) == [NODES + 1]
