"""The events that bring claims in line with the pods.

    claimed ──(the pod is seen bound, here)──────────────> confirmed
    claimed ──(the claim expires, the pod is not bound)──> released: expired
    any ──────(the pod is bound to another node)─────────> released: bound-elsewhere
    any ──────(its Binding names other cards)────────────> released: moved
    any ──────(the pod ended)────────────────────────────> released: finished
    any ──────(the pod was deleted)──────────────────────> released: gone
    any ──────(an agent sees another pod on the card)────> released: moved, claimed for that pod

A pod that is bound without a claim gets one too; see `bound_pods`.

A card that is unhealthy, removed or on a removed node keeps its claims until their pods end.
"""

from collections.abc import Iterator
from typing import NamedTuple

from joulie_bus.events import (
    CardClaimed,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    ReleaseReason,
)
from joulie_extender.gpu.fit import held_request_of, wanted_mb
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import ClusterState, PodState

MOVED_S = 90  # irrelevant: the claim is confirmed in the same batch


class Proposal(NamedTuple):
    """Hashable, so that the time since it became due can be tracked."""

    card: str
    events: tuple[ClaimEvent, ...]
    # Requires the API server to confirm that the pod is not bound or does not exist.
    unless_bound: Claim | None = None
    uid: str = ""


def proposals(cluster_state: ClusterState, uuid: str, now: int) -> Iterator[Proposal]:
    """About one card. `now` is the broker's clock, or one that is behind it."""
    card = cluster_state.gpus.get(uuid)
    if card is None:
        return
    moved = _moved(cluster_state, uuid, card)
    if moved is not None:
        yield moved
        return
    for uid, claim in sorted(card.claims.items()):
        yield from _about(uuid, uid, claim, cluster_state.pods.get(uid), now)


def _about(uuid: str, uid: str, claim: Claim, pod: PodState | None, now: int) -> Iterator[Proposal]:
    if pod is None or not (pod.node or pod.finished):
        if pod is None and claim.confirmed:
            yield _release(uuid, uid, "gone", claim)
        elif now > claim.expires_at:
            yield _release(uuid, uid, "expired", claim)
    elif pod.finished:
        yield _release(uuid, uid, "finished")
    elif pod.node != claim.node:
        yield _release(uuid, uid, "bound-elsewhere")
    elif pod.pod.gpu.given and uuid not in pod.pod.gpu.given and not claim.confirmed:
        yield _release(uuid, uid, "moved")
    elif not claim.confirmed:
        yield Proposal(uuid, (ClaimConfirmed(card=uuid, pod_uid=uid),), uid=uid)


def _release(
    uuid: str, uid: str, why: ReleaseReason, unless_bound: Claim | None = None
) -> Proposal:
    released = ClaimReleased(card=uuid, pod_uid=uid, why=why)
    return Proposal(uuid, (released,), unless_bound, uid)


def _moved(cluster_state: ClusterState, uuid: str, card: CardState) -> Proposal | None:
    """An agent reports the pod on a card: the kubelet allocated another card than was chosen."""
    if card.device is not None:
        return None  # kube-scheduler gave it out
    if card.source != "agent" or not card.owner or card.owner in card.claims:
        return None
    pod = cluster_state.pods.get(card.owner)
    if pod is None or pod.finished or pod.node != card.node:
        return None
    request = held_request_of(pod.pod)
    mb = wanted_mb(request, card.total_mb) if request is not None else card.total_mb
    displaced = [uid for uid, claim in sorted(card.claims.items()) if claim.mb >= card.total_mb]
    released = (ClaimReleased(card=uuid, pod_uid=uid, why="moved") for uid in displaced)
    claimed = CardClaimed(
        card=uuid,
        pod_uid=card.owner,
        namespace=pod.pod.namespace,
        name=pod.pod.name,
        node=card.node,
        mb=mb,
        expires_s=MOVED_S,
    )
    confirmed = ClaimConfirmed(card=uuid, pod_uid=card.owner)
    return Proposal(uuid, (*released, claimed, confirmed), uid=card.owner)


def surplus(cluster_state: ClusterState, uid: str, held: list[str]) -> Iterator[Proposal]:
    """Cards claimed for a pod that an agent sees on enough other cards."""
    pod = cluster_state.pods.get(uid)
    request = held_request_of(pod.pod) if pod is not None else None
    cards = {uuid: cluster_state.gpus[uuid] for uuid in held if uuid in cluster_state.gpus}
    seen = [uuid for uuid, card in cards.items() if _is_seen(card, uid)]
    if request is None or not request.is_alone or len(seen) < request.number:
        return
    for uuid, card in sorted(cards.items()):
        if uid in card.claims and uuid not in seen:
            yield _release(uuid, uid, "moved")


def _is_seen(card: CardState, uid: str) -> bool:
    return card.source == "agent" and card.owner == uid and uid in card.claims
