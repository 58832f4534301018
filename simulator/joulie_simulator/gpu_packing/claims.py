"""Cards that are claimed as `/gpu/bind` claims them: by a claim that is confirmed at once."""

from joulie_bus.events import CardClaimed, ClaimConfirmed, ClaimReleased, PodAsk
from joulie_projections.state.cards import CardState, after_claim

AT = 1  # any time: the results do not depend on it


def claimed(card: CardState, uuid: str, pod: PodAsk, mb: int) -> CardState:
    """The card of this UUID, with a claim of the pod on so much of its memory."""
    made = CardClaimed(
        card=uuid,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=card.node,
        mb=mb,
        expires_s=1,
    )
    reserved = after_claim(card, made, AT)
    held = after_claim(reserved, ClaimConfirmed(card=uuid, pod_uid=pod.uid), AT)
    assert held is not None
    return held


def released(card: CardState, uuid: str, pod: PodAsk) -> CardState:
    """The card without the claim of this pod."""
    left = after_claim(card, ClaimReleased(card=uuid, pod_uid=pod.uid, why="gone"), AT)
    assert left is not None
    return left
