"""Folding sightings and claims of GPU cards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import card, claim, confirmed, noon, records, released
from joulie_bus.events import CardClaimed, ClaimEvent, Fact, GpuGone, GpuSeen
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


def expected_claim(
    uid: str, mb: int = 20_000, *, at_s: float = 0, confirmed: bool = False
) -> Claim:
    """The claim that the event `claim` creates."""
    return Claim(
        namespace="team",
        name=uid,
        node="n1",
        mb=mb,
        expires_at=noon(at_s + 60),
        confirmed=confirmed,
    )


def test_the_last_sighting_replaces_the_properties_of_a_card() -> None:
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


def test_a_claim_expires_relative_to_the_brokers_time() -> None:
    assert claims(card("g"), claim("g", "p", 7)) == {"p": expected_claim("p", 7, at_s=1)}


def test_pods_can_share_the_memory_of_a_card() -> None:
    both = claims(card("g"), claim("g", "a"), claim("g", "b"))

    assert both == {"a": expected_claim("a", at_s=1), "b": expected_claim("b", at_s=2)}


def test_a_pod_that_claims_again_replaces_its_claim() -> None:
    again = claims(claim("g", "p", 7), confirmed("g", "p"), claim("g", "p", 9))

    assert again == {"p": expected_claim("p", 9, at_s=2)}


def test_a_confirmation_marks_the_claim() -> None:
    assert claims(claim("g", "p"), confirmed("g", "p")) == {
        "p": expected_claim("p", confirmed=True)
    }


def test_a_release_removes_one_claim_and_keeps_the_others() -> None:
    left = claims(claim("g", "a"), claim("g", "b"), released("g", "a"))

    assert left == {"b": expected_claim("b", at_s=1)}


@pytest.mark.parametrize(
    "late", [confirmed("g", "x"), released("g", "x")], ids=["confirm", "release"]
)
def test_confirming_or_releasing_a_missing_claim_has_no_effect(late: ClaimEvent) -> None:
    assert after(late) is None
    assert claims(card("g"), claim("g", "p"), late) == {"p": expected_claim("p", at_s=1)}


def test_a_sighting_keeps_the_claims() -> None:
    assert claims(claim("g", "p"), card("g"), card("g", used_mb=9)) == {"p": expected_claim("p")}


def test_a_removed_card_is_deleted() -> None:
    assert after(card("g"), GpuGone(uuid="g")) is None


def test_a_removed_card_is_deleted_with_its_last_claim() -> None:
    events = card("g"), claim("g", "p"), GpuGone(uuid="g")

    assert after(*events) == CardState(at=noon(2), claims={"p": expected_claim("p", at_s=1)})
    assert after(*events, released("g", "p")) is None


CLAIM_EVENTS = st.builds(
    lambda make, pod: make("g", pod),
    st.sampled_from([claim, confirmed, released]),
    st.sampled_from(["a", "b", "c"]),
)


@given(events=st.lists(CLAIM_EVENTS, max_size=20))
@settings(deadline=None, max_examples=60)
def test_a_pod_has_a_claim_unless_its_last_claim_was_released(
    events: list[ClaimEvent],
) -> None:
    last = {fact.pod_uid: fact for fact in events if not fact.TYPE.endswith("confirmed")}
    holding = {uid for uid, fact in last.items() if isinstance(fact, CardClaimed)}

    assert set(claims(*events)) == holding
    assert set(claims(card("g"), *events)) == holding
