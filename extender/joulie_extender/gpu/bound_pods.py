"""Claims for pods that were bound without one: by another scheduler, or without card annotations.

Such a pod runs on cards of its node all the same. Until an agent reports which, it holds as many
cards as it requests, so that no other pod is given them.
"""

from collections.abc import Iterable, Iterator, Sequence

from joulie_bus.events import CardClaimed, ClaimConfirmed, PodAsk
from joulie_extender.gpu.claim_proposals import MOVED_S, Proposal
from joulie_extender.gpu.fit import GpuRequest, held_request_of, wanted_mb
from joulie_extender.gpu.shapes import CARD
from joulie_projections.pods.devices import is_by_dra
from joulie_projections.state.cards import UNKNOWN_HOLDER, CardState, free_mb, is_idle
from joulie_projections.state.state import ClusterState, NodeState, PodState


def is_bound_to_cards(pod: PodState) -> bool:
    """Whether the pod runs and uses cards that kube-scheduler does not give out."""
    asked = pod.pod
    if is_by_dra(asked):
        return False
    return bool(pod.node and not pod.finished and (asked.gpu_milli or asked.gpu.vram_mb))


def claims_of_bound(
    cluster_state: ClusterState, uid: str, on_node: Sequence[str]
) -> Iterator[Proposal]:
    """The missing claims of a bound pod, one proposal for each card; `on_node` are the cards there.

    Nothing for a pod that a card names already, and nothing on cards that are in use.
    """
    pod, cards = cluster_state.pods.get(uid), cluster_state.gpus
    if pod is None or not is_bound_to_cards(pod):
        return
    request = _request(pod.pod, cluster_state.nodes.get(pod.node))
    here = {name: cards[name] for name in on_node if name in cards}
    if gives_out(here.values()):
        return
    held = [card for card in here.values() if _holds(card, uid, pod.pod)]
    if request is None or any(uid not in card.claims for card in held):
        return
    left = [name for name, card in here.items() if uid not in card.claims and card.total_mb]
    usable = [name for name in left if _is_free(here[name], request)]
    given = pod.pod.gpu.given
    usable.sort(key=lambda name: (name not in given, *_rank(here[name], request), name))
    for name in usable[: max(0, request.number - len(held))]:
        yield _claim(name, here[name], pod, request)


def gives_out(on_node: Iterable[CardState]) -> bool:
    """Whether kube-scheduler gives out the cards of the node, by DRA: Joulie then claims none."""
    return any(card.device is not None for card in on_node)


def _request(pod: PodAsk, node: NodeState | None) -> GpuRequest | None:
    """A unit of a node whose cards are shared by time is that share of a card."""
    request = held_request_of(pod)
    if request is None or node is None or not request.is_alone or node.unit_milli == CARD:
        return request
    share = node.unit_milli * request.number
    return request._replace(number=1, share_milli=share, is_alone=False)


def _holds(card: CardState, uid: str, pod: PodAsk) -> bool:
    return uid in card.claims or card.owner == uid or card.holder == f"{pod.namespace}/{pod.name}"


def _is_free(card: CardState, request: GpuRequest) -> bool:
    """A card that is in use by a pod that it does not name may be that of this pod."""
    if not card.claims and not card.owner and card.holder == UNKNOWN_HOLDER:
        return True
    if request.is_alone:
        return is_idle(card)
    return free_mb(card) >= wanted_mb(request, card.total_mb)


def _rank(card: CardState, request: GpuRequest) -> tuple[bool, bool, int]:
    """Cards in use first, then healthy ones; for a share, those with the least memory left."""
    left_mb = 0 if request.is_alone else free_mb(card)
    return card.holder != UNKNOWN_HOLDER, not card.healthy, left_mb


def _claim(name: str, card: CardState, pod: PodState, request: GpuRequest) -> Proposal:
    claimed = CardClaimed(
        card=name,
        pod_uid=pod.pod.uid,
        namespace=pod.pod.namespace,
        name=pod.pod.name,
        node=pod.node,
        mb=wanted_mb(request, card.total_mb),
        expires_s=MOVED_S,
    )
    confirmed = ClaimConfirmed(card=name, pod_uid=pod.pod.uid)
    return Proposal(name, (claimed, confirmed), uid=pod.pod.uid)
