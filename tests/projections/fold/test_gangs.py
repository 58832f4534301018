"""Which groups of pods run on a node, in the state and in the columns."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import ask, node_seen, records
from joulie_bus.events import Fact, PodBound, PodFinished, PodGone, Ties
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.gangs import Gangs


def folded(facts: Sequence[Fact]) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return state


def bound(uid: str, group: str = "jobset/train", *, node: str = "n", kind: str = "") -> PodBound:
    return PodBound(pod=replace(ask(uid), ties=Ties(group=group, replaced_by=kind)), node=node)


@pytest.mark.parametrize("end", [PodFinished(uid="p"), PodGone(uid="p")])
def test_a_member_counts_from_its_binding_to_its_end(end: Fact) -> None:
    facts: list[Fact] = [node_seen("n"), bound("p"), bound("q"), bound("alone", "")]

    assert folded(facts).nodes["n"].gangs == {"team/jobset/train": 2}
    assert folded([*facts, end]).nodes["n"].gangs == {"team/jobset/train": 1}
    assert folded([*facts, end, PodGone(uid="q")]).nodes["n"].gangs == {}


def test_a_newer_version_adds_group_and_controller_to_a_pod_that_runs() -> None:
    before: list[Fact] = [node_seen("n"), bound("p", "")]
    state = folded([*before, bound("p", kind="ReplicaSet")])

    assert state.pods["p"].pod.replaced_by == "ReplicaSet"
    assert state.nodes["n"].gangs == {"team/jobset/train": 1}
    assert state.nodes["n"].pods == 1
    elsewhere = folded([*before, bound("p", node="other")])
    assert elsewhere.pods["p"].pod.group == ""
    assert folded([*before, PodFinished(uid="p"), bound("p")]).nodes["n"].gangs == {}


CHANGES = st.lists(
    st.dictionaries(
        st.integers(1, 5), st.dictionaries(st.sampled_from("abc"), st.integers(1, 3)), max_size=3
    ),
    max_size=8,
)


@given(CHANGES)
def test_columns_that_follow_changes_equal_columns_of_the_whole(
    changes: list[dict[int, dict[str, int]]],
) -> None:
    gangs, rows = Gangs(), dict[int, dict[str, int]]()
    for change in changes:
        gangs, rows = gangs.following(change), rows | change

    for name in "abc":
        found = [(row, counts[name]) for row, counts in sorted(rows.items()) if name in counts]
        places, counts = gangs.of(name)
        assert list(zip(places.tolist(), counts.tolist(), strict=True)) == found
    assert gangs.following(rows) is gangs


def test_the_columns_have_the_members_of_the_state_also_after_readings() -> None:
    state = folded([node_seen("n"), bound("p"), bound("q")])
    columns = TwinColumns.of_state(state).with_readings([state.nodes["n"]])
    rows, counts = columns.gangs.of("team/jobset/train")

    assert (rows.tolist(), counts.tolist()) == ([columns.rows["n"]], [2])
    gone = columns.following(state, {"n": None})
    assert gone.gangs.of("team/jobset/train")[0].tolist() == []
