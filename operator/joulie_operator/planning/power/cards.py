"""Whose cards may be capped one by one: those that pods of class standard alone hold.

A card of a pod of class performance keeps what its class has, and so does a card whose pods are not
known. A free card keeps it too: the next pod on it may be of class performance.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from joulie_bus.events import PodAsk, SafeCard
from joulie_bus.events.agents import MOST_SHARING
from joulie_projections.state.cards import UNKNOWN_HOLDER, CardState, owner_of
from joulie_projections.state.state import ClusterState, NodeState, PodState


class CardUse(Enum):
    """The pods that use a card."""

    FREE = "free"
    STANDARD = "standard"  # pods of class standard alone
    SPARED = "spared"  # a pod of class performance, or one that is not known


Uses = Mapping[str, CardUse]  # by uuid


def card_uses(state: ClusterState, nodes: Collection[str]) -> dict[str, dict[str, CardUse]]:
    """The uses of the cards of these nodes."""
    found: dict[str, dict[str, CardUse]] = {name: {} for name in nodes}
    for uuid, card in state.gpus.items() if found else ():
        if card.node in found:
            found[card.node][uuid] = use_of(card, state.pods)
    return found


def use_of(card: CardState, pods: Mapping[str, PodState]) -> CardUse:
    holders = list(_holders(card, pods))
    if not holders:
        return CardUse.FREE
    is_standard = all(pod is not None and pod.workload == "standard" for pod in holders)
    return CardUse.STANDARD if is_standard else CardUse.SPARED


def _holders(card: CardState, pods: Mapping[str, PodState]) -> Iterator[PodAsk | None]:
    """The pods that have the card or a claim on it; None for one that is not known."""
    allocated = card.device.claims if card.device is not None else ()
    uids = {*card.claims, *(uid for claim in allocated for uid in claim.pods)}
    if card.holder == UNKNOWN_HOLDER or any(not claim.pods for claim in allocated):
        yield None
    elif owner := owner_of(card):
        uids.add(owner)
    for uid in sorted(uids):
        known = pods.get(uid)
        if known is None:
            yield None
        elif not known.finished:
            yield known.pod


def used_cards(uses: Uses) -> tuple[int, int]:
    """How many cards pods of class standard alone hold, and how many others are in use."""
    standard = sum(use is CardUse.STANDARD for use in uses.values())
    return standard, sum(use is CardUse.SPARED for use in uses.values())


def cards_mw(
    node: NodeState, uses: Uses, all_mw: int | None, spared_mw: int | None
) -> dict[str, int | None]:
    """The caps of single cards where they are not `all_mw`, the cap of the node."""
    standard_mw = lower(all_mw, _standard_mw(node))
    by_use = {
        CardUse.FREE: all_mw,
        CardUse.STANDARD: standard_mw,
        CardUse.SPARED: spared_mw if node.performance_pods else all_mw,
    }
    return {uuid: by_use[use] for uuid, use in sorted(uses.items()) if by_use[use] != all_mw}


def safe_cards(
    state: ClusterState, node: NodeState, uses: Uses, all_mw: int | None, percent: int
) -> dict[str, SafeCard]:
    """The caps of cards of class standard for a writer that hears no more: not above those of the
    plan. They name the pods, because the next pod of such a card may be of class performance."""
    standard_mw = lower(lower(all_mw, _standard_mw(node)), _of_cards(node, percent))
    if standard_mw is None:
        return {}
    standard = (uuid for uuid, use in sorted(uses.items()) if use is CardUse.STANDARD)
    cards = {uuid: state.gpus[uuid] for uuid in standard}
    pods = {uuid: _names(card, state.pods) for uuid, card in cards.items()}
    return {
        uuid: SafeCard(mw=standard_mw, pods=names, device=_device(cards[uuid]))
        for uuid, names in pods.items()
        if len(names) <= MOST_SHARING
    }


def _device(card: CardState) -> str:
    """As the kubelet names a card that DRA gives out as one whole device. Of a card in parts the
    writer could not tell which pods have it: it gets no name there, and so no safe cap."""
    device = card.device
    return f"{device.pool}/{device.device}" if device is not None and device.device else ""


def _names(card: CardState, pods: Mapping[str, PodState]) -> tuple[str, ...]:
    """The pods of a card as the kubelet names them."""
    return tuple(f"{pod.namespace}/{pod.name}" for pod in _holders(card, pods) if pod is not None)


def _standard_mw(node: NodeState) -> int | None:
    return _of_cards(node, node.standard_gpu_cap_pct)


def _of_cards(node: NodeState, percent: int | None) -> int | None:
    """Not below the lowest cap that the cards accept."""
    found = node.hardware
    if percent is None or percent >= 100 or found is None or not found.gpu_max_mw:
        return None
    return max(found.gpu_min_mw, found.gpu_max_mw * percent // 100)


def lower(one: int | None, other: int | None) -> int | None:
    """The lower of two caps; None is no cap."""
    return min((cap for cap in (one, other) if cap is not None), default=None)
