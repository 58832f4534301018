"""What is due about claims: pure, card by card."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON
from gpu_kit import MB, a_card, a_claim, wanting
from joulie_bus.events import CardClaimed, ClaimConfirmed, ClaimReleased
from joulie_extender.gpu.claim_proposals import Proposal, proposals, surplus
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, PodState

HELD = a_card(claims={"p": a_claim()})
CONFIRMED = a_card(claims={"p": a_claim(confirmed=True)})
BOUND = PodState(pod=wanting("p"), node="n0")


def cluster_state_of(card: CardState, **pods: PodState) -> ClusterState:
    cluster_state = ClusterState()
    cluster_state.gpus["g"] = card
    cluster_state.pods.update(pods)
    return cluster_state


def due(card: CardState, **pods: PodState) -> list[Proposal]:
    """In the last moment of the claim's life."""
    return list(proposals(cluster_state_of(card, **pods), "g", NOON))


def later(card: CardState, **pods: PodState) -> list[Proposal]:
    return list(proposals(cluster_state_of(card, **pods), "g", NOON + 1))


def why(found: list[Proposal]) -> list[str]:
    """Reasons of releases; the TYPE of anything else."""
    return [getattr(event, "why", event.TYPE) for each in found for event in each.events]


def given(*cards: str) -> PodState:
    pod = wanting("p")
    return PodState(pod=replace(pod, gpu=replace(pod.gpu, given=cards)), node="n0")


@pytest.mark.parametrize(
    ("card", "pods", "told"),
    [
        pytest.param(HELD, {"p": BOUND}, ["claim.confirmed"], id="bound here"),
        pytest.param(CONFIRMED, {"p": BOUND}, [], id="confirmed already"),
        pytest.param(HELD, {"p": replace(BOUND, node="n1")}, ["bound-elsewhere"], id="elsewhere"),
        pytest.param(HELD, {"p": replace(BOUND, finished=True)}, ["finished"], id="ended"),
        pytest.param(CONFIRMED, {"p": replace(BOUND, finished=True)}, ["finished"], id="ended too"),
        pytest.param(HELD, {"p": PodState(pod=wanting("p"))}, [], id="still waiting"),
        pytest.param(HELD, {}, [], id="not seen yet"),
        pytest.param(CONFIRMED, {}, ["gone"], id="seen, and gone"),
        pytest.param(HELD, {"p": given("g")}, ["claim.confirmed"], id="its Binding names it"),
        pytest.param(HELD, {"p": given("other")}, ["moved"], id="its Binding names another"),
    ],
)
def test_what_is_due_before_a_claim_has_lapsed(
    card: CardState, pods: dict[str, PodState], told: list[str]
) -> None:
    assert why(due(card, **pods)) == told


@pytest.mark.parametrize("pods", [{}, {"p": PodState(pod=wanting("p"))}], ids=["gone", "waiting"])
def test_a_claim_whose_pod_never_binds_lapses(pods: dict[str, PodState]) -> None:
    assert why(later(HELD, **pods)) == ["expired"]
    assert why(due(HELD, **pods)) == []


def test_that_a_pod_is_gone_or_not_bound_has_to_be_proved() -> None:
    proved = [each.unless_bound is not None for each in (*later(HELD), *due(CONFIRMED))]

    assert proved == [True, True]
    assert due(HELD, p=replace(BOUND, finished=True))[0].unless_bound is None


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(replace(CONFIRMED, healthy=False), id="unhealthy"),
        pytest.param(replace(CONFIRMED, node=""), id="gone, or replaced by another"),
        pytest.param(replace(CONFIRMED, node="n9"), id="on a node that went and came back"),
    ],
)
def test_a_card_that_fails_under_a_running_pod_stays_its_until_it_ends(card: CardState) -> None:
    assert later(card, p=BOUND) == []
    assert why(due(card, p=replace(BOUND, finished=True))) == ["finished"]


def test_a_card_on_which_an_agent_sees_another_pod_moves_to_that_pod() -> None:
    seen = replace(CONFIRMED, owner="q", source="agent")
    other = PodState(pod=wanting("q", model="A100"), node="n0")

    assert due(seen, p=BOUND, q=other) == [
        Proposal(
            "g",
            (
                ClaimReleased(card="g", pod_uid="p", why="moved"),
                CardClaimed(
                    card="g",
                    pod_uid="q",
                    namespace="team",
                    name="q",
                    node="n0",
                    mb=MB,
                    expires_s=90,
                ),
                ClaimConfirmed(card="g", pod_uid="q"),
            ),
            uid="q",
        )
    ]


@pytest.mark.parametrize(
    ("owner", "source"),
    [("p", "agent"), ("stranger", "agent"), ("", "agent"), ("q", "resource")],
    ids=["who has claimed it", "a pod that nobody knows", "nobody", "not seen by an agent"],
)
def test_nothing_moves_to_a_pod_that_is_not_seen_there(owner: str, source: str) -> None:
    seen = replace(CONFIRMED, owner=owner, source=source)

    assert due(seen, p=BOUND, q=PodState(pod=wanting("q", model="A100"), node="n0")) == []


def test_a_pod_that_is_seen_on_all_its_cards_leaves_the_others() -> None:
    cluster_state = cluster_state_of(
        replace(CONFIRMED, source="agent"), p=replace(BOUND, pod=wanting("p", model="A100"))
    )
    cluster_state.gpus["h"] = replace(CONFIRMED, owner="p", source="agent")

    assert why(list(surplus(cluster_state, "p", ["g", "h"]))) == ["moved"]
    assert [each.card for each in surplus(cluster_state, "p", ["g", "h"])] == ["g"]
    cluster_state.gpus["h"] = replace(CONFIRMED, source="agent")
    assert list(surplus(cluster_state, "p", ["g", "h"])) == []


def test_nothing_is_due_about_a_card_that_is_not_known() -> None:
    assert list(proposals(ClusterState(), "g", NOON)) == []


@pytest.mark.parametrize(
    "other",
    [
        PodState(pod=wanting("q"), node="n0", finished=True),
        PodState(pod=wanting("q"), node="n1"),
        PodState(pod=wanting("q")),
    ],
    ids=["ended", "elsewhere", "pending"],
)
def test_nothing_moves_to_a_pod_that_does_not_run_on_the_node(other: PodState) -> None:
    seen = replace(CONFIRMED, owner="q", source="agent")

    assert due(seen, p=BOUND, q=other) == []


def test_a_pod_that_an_agent_sees_displaces_only_pods_with_the_whole_card() -> None:
    share = a_card(claims={"p": a_claim(MB - 1, confirmed=True)})
    seen = replace(share, owner="q", source="agent")
    quarter = PodState(pod=wanting("q", cards=0, share_milli=250), node="n0")

    [moved] = due(seen, p=BOUND, q=quarter)

    claimed = moved.events[0]
    assert isinstance(claimed, CardClaimed)
    assert claimed.mb == MB // 4
    assert len(moved.events) == 2


def test_a_pod_without_a_request_that_an_agent_sees_gets_the_whole_card() -> None:
    seen = replace(a_card(), owner="q", source="agent")
    [moved] = due(seen, q=PodState(pod=wanting("q", cards=0), node="n0"))

    assert [getattr(event, "mb", None) for event in moved.events] == [MB, None]


def test_a_pod_that_is_seen_on_too_few_cards_keeps_all() -> None:
    two = replace(BOUND, pod=wanting("p", cards=2, model="A100"))
    seen = replace(CONFIRMED, owner="p", source="agent")
    cluster_state = cluster_state_of(replace(CONFIRMED, source="agent"), p=two)
    cluster_state.gpus["h"] = seen

    assert list(surplus(cluster_state, "p", ["g", "h"])) == []
    cluster_state.gpus["i"] = seen
    assert [each.card for each in surplus(cluster_state, "p", ["g", "h", "i", "gone"])] == ["g"]
    assert list(surplus(cluster_state, "stranger", ["g", "h", "i"])) == []


def test_a_pod_with_a_share_leaves_no_card() -> None:
    share = replace(BOUND, pod=wanting("p", cards=0, share_milli=250))
    cluster_state = cluster_state_of(replace(CONFIRMED, source="agent"), p=share)
    cluster_state.gpus["h"] = replace(CONFIRMED, owner="p", source="agent")

    assert list(surplus(cluster_state, "p", ["g", "h"])) == []
