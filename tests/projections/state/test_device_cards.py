"""Cards that kube-scheduler gives out by DRA, in the folded state."""

from itertools import permutations

import pytest

from bus_kit import bound, card, claim, node_seen, noon, records
from bus_kit.cards import device
from joulie_bus.events import DeviceGone, DevicesAsked, Fact, GpuGone, GpuSeen, PodGone
from joulie_projections.fold.sequence import fold
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import (
    CardState,
    allocated_milli,
    free_mb,
    holder_of,
    is_idle,
    is_usable,
    used_mb,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

TOTAL_MB = 81_559
SEEN_BY_AGENT = GpuSeen(uuid="g", node="n1", model="H100", total_mb=80_000, source="agent")


def state_after(*facts: Fact) -> Draft:
    draft = Draft(ClusterState())
    fold(draft, records(*facts), 0)
    return draft


def after(*facts: Fact) -> CardState | None:
    return state_after(*facts).gpus.get("g")


def known(*facts: Fact) -> CardState:
    found = after(*facts)
    assert found is not None
    return found


def test_a_device_is_a_card_with_its_model_and_memory() -> None:
    found = known(device("g"))

    assert (found.node, found.model, found.total_mb) == ("n1", "NVIDIA H100 SXM5", TOTAL_MB)
    assert (free_mb(found), is_idle(found), is_usable(found)) == (TOTAL_MB, True, True)


def test_an_allocated_card_is_not_free_until_the_pods_or_the_allocation_are_gone() -> None:
    held = known(device("g", "n1", "p", "q"))

    assert (used_mb(held), free_mb(held), is_idle(held)) == (TOTAL_MB, 0, False)
    assert holder_of(held) == "p"
    assert not is_idle(held, frozenset({"p"}))
    assert is_idle(held, frozenset({"p", "q"}))
    assert is_idle(known(device("g", "n1", "p"), device("g")))


def test_a_tainted_card_is_not_usable() -> None:
    assert not is_usable(known(device("g", taint="xid=79")))


@pytest.mark.parametrize("order", [*permutations((SEEN_BY_AGENT, device("g", "n1", "p")))])
def test_a_device_and_a_card_of_an_agent_with_one_uuid_are_one_row(order: list[Fact]) -> None:
    found = known(*order)

    assert (found.model, found.total_mb, found.source) == ("H100", 80_000, "agent")
    assert allocated_milli(found) == 1000


def test_the_card_stays_while_one_of_both_sources_shows_it() -> None:
    both = (SEEN_BY_AGENT, device("g"))

    assert known(*both, DeviceGone(card="g")).device is None
    assert known(*both, GpuGone(uuid="g")).source == "dra"
    assert after(*both, GpuGone(uuid="g"), DeviceGone(card="g")) is None


def test_a_claim_of_joulie_keeps_the_row_of_a_device_that_is_gone() -> None:
    found = known(device("g"), claim("g", "p"), DeviceGone(card="g"))

    assert (found.node, [*found.claims]) == ("", ["p"])


def test_a_repeated_fact_changes_nothing() -> None:
    once, twice = known(device("g", "n1", "p")), known(*[device("g", "n1", "p")] * 2)

    assert (once.device, once.model) == (twice.device, twice.model)


def test_a_bound_pod_whose_devices_become_known_adds_their_load_once() -> None:
    facts = (node_seen("n1"), bound("p", "n1", devices=0))
    more = bound("p", "n1", devices=8)
    before, once = state_after(*facts), state_after(*facts, more)
    twice, ended = state_after(*facts, more, more), state_after(*facts, more, PodGone(uid="p"))

    def load(state: Draft) -> Load:
        node = state.nodes.get("n1")
        assert node is not None
        return node.load

    assert load(once) - load(before) == Load(0, 0, 8000, 0)
    assert load(twice) == load(once)
    assert load(ended) == Load()


def test_the_arrival_of_a_pod_has_its_devices_too() -> None:
    node = state_after(bound("p", "n1", devices=0), bound("p", "n1", devices=2)).nodes.get("n1")

    assert node is not None
    assert [arrival.load.gpu_standard_milli for arrival in node.arrivals] == [2000]


def test_a_bound_pod_without_claims_is_not_changed_by_another_ask() -> None:
    state = state_after(bound("p", "n1"), bound("p", "n1", performance=True))

    assert state.pods.get("p").pod.workload == "standard"  # type: ignore[union-attr]


def test_what_a_template_asks_for_is_known_until_it_is_gone() -> None:
    asked = DevicesAsked(by="template", namespace="team", name="eight", gpus=8)
    gone = DevicesAsked(by="template", namespace="team", name="eight")

    def known_after(*facts: Fact) -> int | None:
        state, draft = ClusterState(), state_after(*facts)
        state.cluster = {key: row for key, row in draft.cluster.changes.items() if row}
        return state.gpus_asked("team", "template/eight")

    assert (known_after(asked), known_after(asked, gone)) == (8, None)


def test_cards_of_other_sources_have_no_device() -> None:
    assert known(card("g")) == CardState(
        at=noon(0),
        node="n1",
        model="NVIDIA H100 SXM5",
        total_mb=TOTAL_MB,
        healthy=True,
        source="resource",
    )
