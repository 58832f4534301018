"""Claims of pods that were bound without one: pure, pod by pod."""

import pytest
from msgspec.structs import replace

from gpu_kit import MB, a_card, a_claim, wanting
from joulie_bus.events import CardClaimed, ClaimConfirmed
from joulie_bus.testing import NOON
from joulie_extender.gpu.bound_pods import claims_of_bound
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState, PodState

BOUND = PodState(pod=wanting("p"), node="n0")
NODE = NodeState(ordinal=0, at=NOON, gpus=2)


def claimed(pod: PodState, node: NodeState = NODE, **cards: CardState) -> list[tuple[str, int]]:
    """The cards that the pod gets, and the memory of each."""
    cluster_state = ClusterState()
    cluster_state.pods["p"] = pod
    cluster_state.nodes["n0"] = node
    cluster_state.gpus.update(cards)
    found = []
    for proposal in claims_of_bound(cluster_state, "p", sorted(cards)):
        made, confirmed = proposal.events
        assert isinstance(made, CardClaimed)
        assert confirmed == ClaimConfirmed(card=proposal.card, pod_uid="p")
        found.append((proposal.card, made.mb))
    return found


@pytest.mark.parametrize(
    ("pod", "cards"),
    [
        pytest.param(BOUND, ["g0"], id="whole card, without annotations"),
        pytest.param(replace(BOUND, pod=wanting("p", cards=2)), ["g0", "g1"], id="two cards"),
        pytest.param(replace(BOUND, pod=wanting("p", cards=3)), ["g0", "g1"], id="more than there"),
        pytest.param(replace(BOUND, pod=wanting("p", model="A100")), ["g0"], id="with a model"),
        pytest.param(replace(BOUND, pod=wanting("p", given=("g1",))), ["g1"], id="its Binding"),
        pytest.param(replace(BOUND, pod=wanting("p", cards=0)), [], id="no card"),
        pytest.param(replace(BOUND, finished=True), [], id="ended"),
        pytest.param(replace(BOUND, node=""), [], id="pending"),
    ],
)
def test_a_bound_pod_holds_as_many_cards_as_it_requests(pod: PodState, cards: list[str]) -> None:
    assert [card for card, _ in claimed(pod, g0=a_card(), g1=a_card())] == cards


@pytest.mark.parametrize(
    ("first", "cards"),
    [
        pytest.param(a_card(claims={"q": a_claim()}), ["g1"], id="claimed by another pod"),
        pytest.param(a_card(owner="q"), ["g1"], id="used by another pod"),
        pytest.param(a_card(holder="team/q"), ["g1"], id="used by another pod, by name"),
        pytest.param(a_card(healthy=False), ["g1"], id="unhealthy"),
        pytest.param(a_card(holder="?"), ["g0"], id="used by a pod that it does not name"),
        pytest.param(a_card(claims={"p": a_claim()}), [], id="claimed by the pod"),
        pytest.param(a_card(owner="p"), [], id="used by the pod"),
        pytest.param(a_card(holder="team/p"), [], id="used by the pod, by name"),
    ],
)
def test_a_card_that_is_known_to_be_in_use_counts_once(first: CardState, cards: list[str]) -> None:
    assert [card for card, _ in claimed(BOUND, g0=first, g1=a_card())] == cards


def test_a_share_is_claimed_where_the_least_is_left() -> None:
    pod = replace(BOUND, pod=wanting("p", cards=0, share_milli=250))
    used = a_card(claims={"q": a_claim(MB // 2)})

    assert claimed(pod, g0=a_card(), g1=used) == [("g1", MB // 4)]


def test_a_unit_of_a_card_that_is_shared_by_time_is_a_share() -> None:
    shared = replace(NODE, gpus=1, gpu_units=4)

    assert claimed(BOUND, shared, g0=a_card()) == [("g0", MB // 4)]
