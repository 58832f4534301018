"""Chooses the GPUs of a node for a pod. The same cards and pod give the same choice.

Options are ranked, in this order, by: cards the pod has claimed already; no untouched group of
linked cards broken up; cards linked to each other; with gpu_packing=fragmentation the least loss
for later pods; the least memory left over; the fewest free cards left in their group. Names break
ties.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.expected_loss import card_losses
from joulie_extender.gpu.fit import (
    FRAGMENTATION,
    GpuRequest,
    GpuWeights,
    fitting,
    gpu_request_of,
    matching,
    untouched_group,
    wanted_mb,
)
from joulie_projections.twin.card_columns import NO_LINK
from joulie_projections.twin.columns import TwinColumns


class ChosenCard(NamedTuple):
    card: str
    mb: int


class CardChoice(NamedTuple):
    cards: tuple[ChosenCard, ...]
    because: str


class _Card(NamedTuple):
    uuid: str
    bundle: int
    model: str
    link: int
    free_mb: int
    total_mb: int
    loss: float  # for later pods, if the pod takes this card
    is_own: bool
    is_in_untouched_group: bool


class _Option(NamedTuple):
    """One way to serve the pod; the smallest tuple is the best."""

    unclaimed: int  # cards that it has not claimed yet
    from_untouched_groups: int  # cards of groups that were whole
    is_scattered: bool
    loss: float
    left_over_mb: int
    others: int  # fitting cards that stay in the group
    model: str
    cards: tuple[_Card, ...]  # UUIDs differ, so that no two options are equal


def choose_cards(
    pod: PodAsk, node: str, twin_columns: TwinColumns, gpu: GpuWeights
) -> CardChoice | None:
    """None if the node cannot serve the pod any more."""
    request, row = gpu_request_of(pod), twin_columns.rows.get(node, 0)
    if request is None or pod.gpu.unreadable or not twin_columns.columns["present"][row]:
        return None
    losses: Mapping[str, float] = {}
    if gpu.packing == FRAGMENTATION:
        losses = card_losses(pod, twin_columns, row, gpu)
    fit = _fitting_on(row, request, twin_columns, gpu, pod.uid, losses)
    options = list(_options(fit, request))
    if not options:
        return None
    best = min(options)
    taken = tuple(ChosenCard(card.uuid, wanted_mb(request, card.total_mb)) for card in best.cards)
    return CardChoice(taken, _because(best, len(fit), request))


def _fitting_on(
    row: int,
    request: GpuRequest,
    twin_columns: TwinColumns,
    gpu: GpuWeights,
    uid: str,
    losses: Mapping[str, float],
) -> list[_Card]:
    own = {twin_columns.cards.uuids[at] for at in twin_columns.cards.held_by([uid])}
    cards = twin_columns.cards.on(np.array([row]), [uid])
    fit = fitting(cards, request) & matching(cards, request.model, gpu.aliases)
    in_untouched_group = untouched_group(cards, request)
    return [
        _Card(
            uuid=cards.uuids[at],
            bundle=int(cards.ints("bundle")[at]),
            model=state.model,
            link=int(cards.ints("link")[at]),
            free_mb=int(cards.ints("free_mb")[at]),
            total_mb=state.total_mb,
            loss=losses.get(cards.uuids[at], 0.0),
            is_own=cards.uuids[at] in own,
            is_in_untouched_group=bool(in_untouched_group[at]),
        )
        for at in np.flatnonzero(fit).tolist()
        if (state := cards.states[at]) is not None
    ]


def _options(fit: list[_Card], request: GpuRequest) -> Iterator[_Option]:
    linked = Counter(card.link for card in fit)
    for alike in _grouped(fit, "bundle"):
        groups = [group for group in _grouped(alike, "link") if group[0].link != NO_LINK]
        for group in groups if request.number > 1 else ():
            yield from _option(group, request, linked, is_scattered=False)
        if not request.is_linked:
            yield from _option(alike, request, linked, is_scattered=request.number > 1)


def _option(
    among: list[_Card], request: GpuRequest, linked: Counter[int], *, is_scattered: bool
) -> Iterator[_Option]:
    if len(among) < request.number:
        return

    def rank(card: _Card) -> tuple[bool, bool, float, int, int, str]:
        others = linked[card.link] if card.link != NO_LINK else 0
        return (
            not card.is_own,
            card.is_in_untouched_group,
            card.loss,
            _left_over(card, request),
            others,
            card.uuid,
        )

    best = tuple(sorted(among, key=rank)[: request.number])
    taken = Counter(card.link for card in best if card.link != NO_LINK)
    yield _Option(
        unclaimed=sum(not card.is_own for card in best),
        from_untouched_groups=sum(card.is_in_untouched_group for card in best),
        is_scattered=is_scattered,
        loss=sum(card.loss for card in best),
        left_over_mb=sum(_left_over(card, request) for card in best),
        others=sum(linked[link] - count for link, count in taken.items()),
        model=best[0].model,
        cards=best,
    )


def _left_over(card: _Card, request: GpuRequest) -> int:
    return card.free_mb - (request.mb if request.is_alone else wanted_mb(request, card.total_mb))


def _grouped(cards: Iterable[_Card], by: str) -> list[list[_Card]]:
    found: defaultdict[int, list[_Card]] = defaultdict(list)
    for card in cards:
        found[getattr(card, by)].append(card)
    return list(found.values())


def _because(best: _Option, fitting: int, request: GpuRequest) -> str:
    """The reason of the choice, for the decision log."""
    parts = [f"{request.number} of {fitting} fitting cards"]
    if not best.unclaimed:
        parts.append("claimed before")
    if request.number > 1:
        parts.append("not linked" if best.is_scattered else "linked")
    if best.from_untouched_groups:
        parts.append("out of an untouched group")
    parts.append(f"{best.left_over_mb} MB left over")
    return ", ".join(parts)
