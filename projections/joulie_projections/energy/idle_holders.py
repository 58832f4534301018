"""Cards that pods hold without using them.

A process that has opened a card and does nothing costs power: an H100 and an H200 draw 17 to 18 %
of their rated power then, against 10 to 11 % without a process and 27 % while they compute a tenth
of the time. A card that pods hold is idle while each of its readings is at most a fifth of its
rated power. Nothing is known of cards without readings, or without a rated power.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from joulie_bus.errors import LedgerDamaged
from joulie_projections.energy.cards import NodeCards
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.meters import GAP_MS
from joulie_projections.energy.pods import NodeEntry, PodEntry


class IdleHolder(msgspec.Struct, frozen=True, array_like=True):
    """The card, and the running pods that hold it."""

    node: str
    card: str
    pods: tuple[str, ...]  # namespace/name
    since_ms: int  # the first pod had it, and it did nothing
    power_mw: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[IdleHolder]).decode


def packed(found: Sequence[IdleHolder]) -> bytes:
    return _encode(found)


def unpacked(body: bytes) -> list[IdleHolder]:
    """Raises LedgerDamaged."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise LedgerDamaged from error


def idle_holders(ledger: Ledger, after_ms: int, silent_ms: float = 0.0) -> list[IdleHolder]:
    """Those that have been idle for so long at the newest reading of their card. The ledger folded
    its newest reading `silent_ms` ago."""
    return [
        found
        for name in sorted(ledger.cards.nodes)
        if (node := ledger.nodes.get(name)) is not None and node.pods
        for found in _on(node, ledger.cards.nodes[name], ledger.newest_ms + silent_ms - GAP_MS)
        if ledger.cards.nodes[name].cards[found.card].last_ms - found.since_ms >= after_ms
    ]


def _on(node: NodeEntry, cards: NodeCards, read_since_ms: float) -> Iterator[IdleHolder]:
    for name, pods in sorted(_holders(node, cards).items()):
        card = cards.cards[name]
        if card.quiet_ms and card.last_ms >= read_since_ms:
            since_ms = max(card.quiet_ms, min(pod.start_ms for pod in pods))
            named = tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in pods))
            yield IdleHolder(node.name, name, named, since_ms, card.last_mw)


def _holders(node: NodeEntry, cards: NodeCards) -> Mapping[str, list[PodEntry]]:
    """The running pods of each card whose holder is known."""
    found: dict[str, list[PodEntry]] = defaultdict(list)
    for pod in node.pods.values():
        if pod.gpu_milli:
            for name in _cards_of(pod, cards):
                found[name].append(pod)
    return found


def _cards_of(pod: PodEntry, cards: NodeCards) -> list[str]:
    """Those in its Binding, else those that it owns, else all if it asks for all."""
    known = [name for name in pod.cards if name in cards.cards]
    known = known or [name for name, card in cards.ordered() if card.owner == pod.uid]
    return known or (list(cards.cards) if pod.gpu_milli >= 1000 * len(cards.cards) else [])
