"""A sequence of cluster states, given change by change, as a view follows them."""

from typing import NamedTuple, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

import reference_scoring
from bus_kit import NOON, SECOND
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import Hall, Halls
from joulie_projections.twin.twin import differs_only_in_readings

T = TypeVar("T")
NODES = 24
ROOMS = Halls(("hall-a", "hall-b"), (Hall(), Hall(), Hall()))


class Step(NamedTuple):
    """The change from one state to the next, and whether an answer used that state."""

    changes: dict[int, NodeState | None]
    read: dict[int, tuple[Sample, ...]]  # of nodes that are there
    planned_s: int
    halls: Halls
    later_s: int
    age_ms: int
    is_looked_at: bool


class StateSequence(NamedTuple):
    """A cluster and its twin columns, updated step by step."""

    nodes: dict[str, NodeState]
    twin_columns: TwinColumns
    now: int

    @classmethod
    def of(cls, first: list[NodeState]) -> "StateSequence":
        whole: dict[int, NodeState | None] = dict(enumerate(first))
        return cls({}, TwinColumns.empty(), NOON).after(Step(whole, {}, 200, ROOMS, 0, 0, True))

    def after(self, step: Step) -> "StateSequence":
        changes = {
            f"n{number}": None if state is None else replace(state, ordinal=number)
            for number, state in step.changes.items()
        }
        for number, samples in step.read.items():
            known = changes.get(f"n{number}") or self.nodes.get(f"n{number}")
            if known is not None:
                changes[f"n{number}"] = _read(known, samples)
        nodes = {**self.nodes, **changes}
        there = {name: state for name, state in nodes.items() if state is not None}
        planned = NOON - step.planned_s * SECOND
        read = {name: state for name, state in changes.items() if self._is_only_read(name, state)}
        others = {name: state for name, state in changes.items() if name not in read}
        twin_columns = self.twin_columns.updated(others.items(), planned, step.halls)
        twin_columns = twin_columns.with_readings(
            [state for state in read.values() if state is not None]
        )
        return StateSequence(there, twin_columns, self.now + step.later_s * SECOND)

    def _is_only_read(self, name: str, state: NodeState | None) -> bool:
        before = self.nodes.get(name)
        return before is not None and state is not None and differs_only_in_readings(before, state)


def _read(node: NodeState, samples: tuple[Sample, ...]) -> NodeState:
    return replace(node, at=max([node.at, *(sample.at for sample in samples)]), samples=samples)


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """The usual value in most draws, so that most states differ from the last one in few rows."""
    return st.sampled_from([usual] * 8 + [*others])


# Rooms change with the weather, their names do not.
halls = mostly(st.just(ROOMS), reference_scoring.buildings).flatmap(lambda strategy: strategy)
steps = st.builds(
    Step,
    st.dictionaries(st.integers(0, NODES - 1), reference_scoring.states | st.none(), max_size=2),
    st.dictionaries(st.integers(0, NODES - 1), reference_scoring.histories, max_size=2),
    mostly(200, 350),
    halls,
    mostly(0, 1, 120, 301, -50),
    mostly(0, 300_001),
    mostly(True, *[False] * 4),
)
firsts = st.lists(reference_scoring.states, min_size=1, max_size=4).map(
    lambda kinds: [kinds[number % len(kinds)] for number in range(NODES)]
)
