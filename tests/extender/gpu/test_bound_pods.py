"""Claims of pods that were bound without one: pure, pod by pod."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON
from gpu_kit import MB, a_card, a_claim, wanting
from joulie_bus.events import CardClaimed, ClaimConfirmed, GpuAsk
from joulie_extender.gpu.bound_pods import claims_of_bound, is_bound_to_cards
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


@pytest.mark.parametrize(
    ("cards", "taken"),
    [
        pytest.param({"g0": a_card(healthy=False)}, ["g0"], id="an unhealthy card, if no other"),
        pytest.param({"g0": a_card(healthy=False), "g1": a_card(holder="?")}, ["g1"], id="in use"),
        pytest.param({"g0": a_card(mb=0)}, [], id="without memory"),
        pytest.param({"g0": a_card(owner="q"), "g1": a_card(holder="team/q")}, [], id="all taken"),
        pytest.param(
            {"g0": a_card(holder="?", claims={"q": a_claim()})}, [], id="in use, and claimed"
        ),
    ],
)
def test_the_card_that_most_likely_runs_the_pod_is_claimed(
    cards: dict[str, CardState], taken: list[str]
) -> None:
    assert [card for card, _ in claimed(BOUND, NODE, **cards)] == taken


def test_the_cards_of_a_binding_come_before_all_others() -> None:
    pod = replace(BOUND, pod=wanting("p", given=("g1",)))

    assert [card for card, _ in claimed(pod, g0=a_card(holder="?"), g1=a_card())] == ["g1"]


def test_a_pod_that_is_seen_on_one_of_its_cards_gets_the_others() -> None:
    pod = replace(BOUND, pod=wanting("p", cards=3))
    held = a_card(owner="p", claims={"p": a_claim()})

    assert [card for card, _ in claimed(pod, g0=held, g1=a_card(), g2=a_card(), g3=a_card())] == [
        "g1",
        "g2",
    ]


def test_a_share_needs_as_much_memory_as_it_is() -> None:
    half = replace(BOUND, pod=wanting("p", cards=0, share_milli=500))
    used = a_card(claims={"q": a_claim(MB // 2)})

    assert claimed(half, g0=used) == [("g0", MB // 2)]
    assert claimed(half, g0=a_card(claims={"q": a_claim(MB // 2 + 1)})) == []


def test_a_pod_by_memory_alone_runs_on_cards() -> None:
    asked = replace(wanting("p", cards=0, vram_mb=1000), gpu_milli=0)

    assert is_bound_to_cards(PodState(pod=asked, node="n0"))
    assert not is_bound_to_cards(PodState(pod=asked))
    assert not is_bound_to_cards(PodState(pod=replace(asked, gpu=GpuAsk()), node="n0"))


def test_units_of_shared_cards_are_shares_rounded_up() -> None:
    two = replace(BOUND, pod=wanting("p", cards=2))
    shared = replace(NODE, gpus=1, gpu_units=3)

    assert claimed(two, shared, g0=a_card()) == [("g0", -(-MB * 668 // 1000))]
    unshared = replace(NODE, gpus=2, gpu_units=2)
    assert claimed(two, unshared, g0=a_card(), g1=a_card()) == [("g0", MB), ("g1", MB)]


def test_no_claim_is_made_for_a_pod_of_an_unknown_node_by_its_units() -> None:
    cluster_state = ClusterState()
    cluster_state.pods["p"] = BOUND
    cluster_state.gpus["g0"] = a_card()

    assert [each.card for each in claims_of_bound(cluster_state, "p", ["g0", "gone"])] == ["g0"]
    assert list(claims_of_bound(cluster_state, "other", ["g0"])) == []


def test_a_pod_of_two_cards_that_one_card_names_already_claims_no_other() -> None:
    """The source that named the first card names the others, too."""
    pod = replace(BOUND, pod=wanting("p", cards=2))

    assert claimed(pod, g0=a_card(owner="p"), g1=a_card()) == []


def test_a_unit_of_two_cards_that_are_shared_by_time_is_a_share_of_one() -> None:
    shared = replace(NODE, gpus=2, gpu_units=8)

    assert claimed(BOUND, shared, g0=a_card(), g1=a_card()) == [("g0", MB // 4)]
