"""A pod that runs and is resized in place: it is seen again with other requests."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from bus_kit import ask, bound, node_seen, power, records
from bus_kit.clock import SECOND
from joulie_bus.events import Fact, GpuAsk, PodBound, PodFinished, PodGone
from joulie_projections.fold.node_facts import SETTLING_NS
from joulie_projections.fold.sequence import fold
from joulie_projections.pods.load import NO_LOAD, load_of
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

GIB = 2**30


def folded(facts: Sequence[Fact]) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return state


def resized(uid: str, cores: float, gib: int = 0) -> PodBound:
    return PodBound(pod=replace(ask(uid, cores=cores), memory_bytes=gib * GIB), node="n")


def test_the_load_of_its_node_is_what_it_asks_for_now() -> None:
    facts: list[Fact] = [node_seen("n"), resized("p", 1, 1), bound("q", "n"), resized("p", 3, 2)]
    state = folded(facts)

    assert state.pods["p"].pod == resized("p", 3, 2).pod
    assert state.nodes["n"].load == load_of(resized("p", 3, 2).pod) + load_of(ask("q"))
    assert folded([*facts, resized("p", 0.5)]).nodes["n"].load.cpu_milli == 1500
    assert state.nodes["n"].pods == 2


@pytest.mark.parametrize("end", [PodFinished(uid="p"), PodGone(uid="p")])
def test_its_end_takes_away_what_it_asked_for_at_last(end: Fact) -> None:
    facts: list[Fact] = [node_seen("n"), bound("p", "n"), resized("p", 3, 2), end]

    assert folded(facts).nodes["n"].load == NO_LOAD
    assert folded([*facts, resized("p", 5)]).nodes["n"].pods == (end == PodGone(uid="p"))


def test_only_cores_and_memory_change() -> None:
    other = replace(
        ask("p", performance=True, cores=2, gpus=4), team="blue", gpu=GpuAsk(model="H100")
    )
    state = folded([node_seen("n"), bound("p", "n"), PodBound(pod=other, node="n")])

    assert state.pods["p"].pod == ask("p", cores=2)


def test_it_is_not_resized_on_another_node() -> None:
    state = folded([node_seen("n"), bound("p", "n"), bound("p", "other", cores=5)])

    assert state.nodes["n"].load == load_of(ask("p"))


def test_the_power_of_a_pod_that_a_reading_includes_stays_in_it() -> None:
    """A larger request is no more power: only of a pod that has just arrived it is all that is
    known."""
    arrived: list[Fact] = [node_seen("n"), bound("p", "n")]
    settled = records(*arrived, power("n", 300), resized("p", 4), step_s=SETTLING_NS // SECOND)
    state = ClusterState()
    draft = Draft(state)
    fold(draft, settled, 0)
    draft.commit()

    assert state.nodes["n"].arrivals == ()
    [arrival] = folded([*arrived, resized("p", 4)]).nodes["n"].arrivals
    assert arrival.load == load_of(ask("p", cores=4))


def test_the_same_fact_again_changes_nothing() -> None:
    facts: list[Fact] = [node_seen("n"), resized("p", 1), resized("p", 3, 2)]
    once, twice = folded(facts), folded([*facts, facts[-1]])

    assert (once.pods, once.nodes["n"].load) == (twice.pods, twice.nodes["n"].load)
