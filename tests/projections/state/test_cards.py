"""A card is what was seen of it last, and its claims are what was written last about each pod."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.events import CardClaimed, ClaimEvent, Fact, GpuGone, GpuSeen
from joulie_bus.testing import card, claim, confirmed, noon, records, released
from joulie_projections.fold.sequence import fold
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft


def after(*facts: Fact) -> CardState | None:
    draft = Draft(ClusterState())
    fold(draft, records(*facts), 0)
    return draft.gpus.get("g")


def claims(*facts: Fact) -> dict[str, Claim]:
    found = after(*facts)
    return found.claims if found else {}


def claimed(uid: str, mb: int = 20_000, *, at_s: float = 0, confirmed: bool = False) -> Claim:
    """As `claim` makes it."""
    return Claim(
        namespace="team",
        name=uid,
        node="n1",
        mb=mb,
        expires_at=noon(at_s + 60),
        confirmed=confirmed,
    )


def test_a_card_is_what_was_seen_of_it_last() -> None:
    by_agent = GpuSeen(
        uuid="g",
        node="n2",
        model="H100",
        total_mb=80_000,
        allocated_mb=5,
        healthy=False,
        nvlink_group="0",
        owner="pod-1",
        source="agent",
    )

    assert after(card("g", "n1"), by_agent) == CardState(
        at=noon(1),
        node="n2",
        model="H100",
        total_mb=80_000,
        allocated_mb=5,
        healthy=False,
        nvlink_group="0",
        owner="pod-1",
        source="agent",
    )


def test_a_claim_lapses_so_long_after_the_broker_stored_it() -> None:
    assert claims(card("g"), claim("g", "p", 7)) == {"p": claimed("p", 7, at_s=1)}


def test_pods_share_the_memory_of_a_card() -> None:
    both = claims(card("g"), claim("g", "a"), claim("g", "b"))

    assert both == {"a": claimed("a", at_s=1), "b": claimed("b", at_s=2)}


def test_a_pod_that_claims_again_replaces_its_claim() -> None:
    again = claims(claim("g", "p", 7), confirmed("g", "p"), claim("g", "p", 9))

    assert again == {"p": claimed("p", 9, at_s=2)}


def test_a_confirmed_claim_says_so() -> None:
    assert claims(claim("g", "p"), confirmed("g", "p")) == {"p": claimed("p", confirmed=True)}


def test_a_released_claim_is_gone_and_the_others_stay() -> None:
    left = claims(claim("g", "a"), claim("g", "b"), released("g", "a"))

    assert left == {"b": claimed("b", at_s=1)}


@pytest.mark.parametrize("late", [confirmed("g", "x"), released("g", "x")], ids=["confirm", "free"])
def test_what_was_never_claimed_is_neither_confirmed_nor_released(late: ClaimEvent) -> None:
    assert after(late) is None
    assert claims(card("g"), claim("g", "p"), late) == {"p": claimed("p", at_s=1)}


def test_a_sighting_leaves_the_claims_alone() -> None:
    assert claims(claim("g", "p"), card("g"), card("g", used_mb=9)) == {"p": claimed("p")}


def test_a_card_that_is_gone_is_forgotten() -> None:
    assert after(card("g"), GpuGone(uuid="g")) is None


def test_a_card_that_goes_while_it_is_claimed_is_forgotten_with_its_last_claim() -> None:
    story = card("g"), claim("g", "p"), GpuGone(uuid="g")

    assert after(*story) == CardState(at=noon(2), claims={"p": claimed("p", at_s=1)})
    assert after(*story, released("g", "p")) is None


ABOUT_CLAIMS = st.builds(
    lambda make, pod: make("g", pod),
    st.sampled_from([claim, confirmed, released]),
    st.sampled_from(["a", "b", "c"]),
)


@given(story=st.lists(ABOUT_CLAIMS, max_size=20))
@settings(deadline=None, max_examples=60)
def test_a_pod_holds_a_claim_if_it_claimed_and_was_not_released_since(
    story: list[ClaimEvent],
) -> None:
    last = {fact.pod_uid: fact for fact in story if not fact.TYPE.endswith("confirmed")}
    holding = {uid for uid, fact in last.items() if isinstance(fact, CardClaimed)}

    assert set(claims(*story)) == holding
    assert set(claims(card("g"), *story)) == holding
