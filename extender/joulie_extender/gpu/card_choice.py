"""Which cards of a node a pod gets. Pure: the same cards and the same pod, the same choice.

Of all ways to serve it, in this order: the cards it has claimed already; no untouched group of
linked cards broken up; linked to each other; the least memory left over beside it; the fewest free
cards left in their group. Names decide between equals.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.fit import Wish, fitting, matching, precious, wanted_mb, wish_of
from joulie_extender.gpu.models import Aliases
from joulie_projections.twin.card_columns import NO_LINK
from joulie_projections.twin.columns import TwinColumns


class Taken(NamedTuple):
    card: str
    mb: int


class Pick(NamedTuple):
    cards: tuple[Taken, ...]
    because: str


class _Card(NamedTuple):
    uuid: str
    bundle: int
    model: str
    link: int
    free_mb: int
    total_mb: int
    is_own: bool
    is_precious: bool


class _Way(NamedTuple):
    """One way to serve the pod; the least is the best."""

    strange: int  # cards that it has not claimed yet
    broken: int  # cards of groups that were whole
    is_scattered: bool
    left_over_mb: int
    others: int  # fitting cards that stay in the group
    model: str
    cards: tuple[_Card, ...]  # whose uuids are all different


def pick(pod: PodAsk, node: str, twin_columns: TwinColumns, aliases: Aliases) -> Pick | None:
    """None if the node cannot serve it any more."""
    wish, row = wish_of(pod), twin_columns.rows.get(node, 0)
    if wish is None or pod.gpu.unreadable or not twin_columns.columns["present"][row]:
        return None
    fit = _fitting_on(row, wish, twin_columns, aliases, pod.uid)
    ways = list(_ways(fit, wish))
    if not ways:
        return None
    best = min(ways)
    taken = tuple(Taken(card.uuid, wanted_mb(wish, card.total_mb)) for card in best.cards)
    return Pick(taken, _because(best, len(fit), wish))


def _fitting_on(
    row: int, wish: Wish, twin_columns: TwinColumns, aliases: Aliases, uid: str
) -> list[_Card]:
    own = {twin_columns.cards.uuids[at] for at in twin_columns.cards.held_by([uid])}
    cards = twin_columns.cards.on(np.array([row]), [uid])
    fit = fitting(cards, wish) & matching(cards, wish.model, aliases)
    valued = precious(cards, wish)
    return [
        _Card(
            uuid=cards.uuids[at],
            bundle=int(cards.ints("bundle")[at]),
            model=state.model,
            link=int(cards.ints("link")[at]),
            free_mb=int(cards.ints("free_mb")[at]),
            total_mb=state.total_mb,
            is_own=cards.uuids[at] in own,
            is_precious=bool(valued[at]),
        )
        for at in np.flatnonzero(fit).tolist()
        if (state := cards.states[at]) is not None
    ]


def _ways(fit: list[_Card], wish: Wish) -> Iterator[_Way]:
    linked = Counter(card.link for card in fit)
    for alike in _grouped(fit, "bundle"):
        groups = [group for group in _grouped(alike, "link") if group[0].link != NO_LINK]
        for group in groups if wish.number > 1 else ():
            yield from _way(group, wish, linked, is_scattered=False)
        if not wish.is_linked:
            yield from _way(alike, wish, linked, is_scattered=wish.number > 1)


def _way(
    among: list[_Card], wish: Wish, linked: Counter[int], *, is_scattered: bool
) -> Iterator[_Way]:
    if len(among) < wish.number:
        return

    def worth(card: _Card) -> tuple[bool, bool, int, int, str]:
        others = linked[card.link] if card.link != NO_LINK else 0
        return not card.is_own, card.is_precious, _left_over(card, wish), others, card.uuid

    best = tuple(sorted(among, key=worth)[: wish.number])
    taken = Counter(card.link for card in best if card.link != NO_LINK)
    yield _Way(
        strange=sum(not card.is_own for card in best),
        broken=sum(card.is_precious for card in best),
        is_scattered=is_scattered,
        left_over_mb=sum(_left_over(card, wish) for card in best),
        others=sum(linked[link] - count for link, count in taken.items()),
        model=best[0].model,
        cards=best,
    )


def _left_over(card: _Card, wish: Wish) -> int:
    return card.free_mb - (wish.mb if wish.is_alone else wanted_mb(wish, card.total_mb))


def _grouped(cards: Iterable[_Card], by: str) -> list[list[_Card]]:
    found: defaultdict[int, list[_Card]] = defaultdict(list)
    for card in cards:
        found[getattr(card, by)].append(card)
    return list(found.values())


def _because(best: _Way, fitting: int, wish: Wish) -> str:
    """For people, in the decision log."""
    parts = [f"{wish.number} of {fitting} fitting cards"]
    if not best.strange:
        parts.append("claimed before")
    if wish.number > 1:
        parts.append("not linked" if best.is_scattered else "linked")
    if best.broken:
        parts.append("out of an untouched group")
    parts.append(f"{best.left_over_mb} MB left over")
    return ", ".join(parts)
