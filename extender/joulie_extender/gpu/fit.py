"""Which nodes have the cards that a pod wants, and how well it would fill them up. Pure.

A pod that asks for whole cards has them alone, as the device plugin gives them out; one that asks
for a share or for memory shares a card with others. It needs as many fitting cards of one model as
it asks for, linked to each other where it says so.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_extender.gpu.models import Aliases, is_model
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.card_columns import NO_LINK, NOWHERE, Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import cores_of

Codes = npt.NDArray[np.uint8]
Column = TypeVar("Column", bound=npt.NDArray[Any])
_CARD_MILLI = 1000
DRIVER_MB = 1024  # what a driver may keep of a card that no pod uses
WISHES = 64  # whose seats are kept, for as long as the cards are as they are
HIGHEST = 10.0  # of the scores of kube-scheduler's extenders


class GpuVerdict(IntEnum):
    """Goes on where the verdicts of energy end; the decision log keeps one per candidate."""

    PASSED = 0
    NO_CARDS = 16
    NOT_LINKED = 17
    UNREADABLE = 18


# Fixed sentences without names, numbers or "%", one for each kind of pod.
WANTS_CARDS = "the node has not the healthy, free GPU cards of one model that the pod asks for"
WANTS_LINKED = "the node has not the healthy, free and linked GPU cards that the pod asks for"
WANTS_SENSE = "an annotation of the pod about GPUs cannot be read:"


_NO_CARDS = np.uint8(GpuVerdict.NO_CARDS)


class GpuWeights(NamedTuple):
    binpack: float = 0.3  # of the packing, in a score that is mostly about energy
    links: float = 1.0  # points of ten that breaking up a whole group of linked cards costs
    aliases: Aliases = ()
    packing: str = "share"  # as the article counts, or "fit"
    balance: float = 0.4  # of what "fit" says, the part that cores beside the cards have
    resources: str = ",".join(GPU_RESOURCES)  # by which pods ask for cards; in the asks already


class Wish(NamedTuple):
    """What a pod wants of each of its cards; pods of one wish are alike."""

    model: str
    number: int  # of cards
    mb: int
    share_milli: int
    is_alone: bool  # nobody else may be on the card
    is_linked: bool


class Seats(NamedTuple):
    """One value per row of the board."""

    verdicts: Codes  # as if all nodes were there
    filled: Floats  # percent of the memory of all cards of the model that is used
    breaks: Bools  # a whole group of linked cards would be broken up
    snug: Floats  # the same of the card that a share would fill most; of whole cards, as above
    after: Floats  # percent of the memory of all cards of the model, once the pod is there


def wish_of(pod: PodAsk) -> Wish | None:
    """None if it said nothing about its cards: then there is no rule about them."""
    asked = pod.gpu
    if not asks(pod):
        return None
    milli = asked.share_milli or (0 if pod.gpu_cards else pod.gpu_milli)
    count = pod.gpu_cards or max(1, -(-milli // _CARD_MILLI))
    is_linked = asked.topology == "nvlink" and count > 1
    share = asked.share_milli or -(-milli // count)
    is_alone = not share and (pod.gpu_cards > 0 or not asked.vram_mb)
    return Wish(asked.model, count, asked.vram_mb, share, is_alone, is_linked)


def asks(pod: PodAsk) -> bool:
    asked = pod.gpu
    return bool(
        asked.model or asked.vram_mb or asked.topology or asked.share_milli or asked.unreadable
    )


def wanted_mb(wish: Wish, total_mb: int) -> int:
    """What it would claim of a card of this size."""
    if wish.is_alone:
        return total_mb
    return max(wish.mb, -(-wish.share_milli * total_mb // _CARD_MILLI))


def reason_of(pod: PodAsk) -> str:
    """The one text for all refused nodes; it depends on the pod alone."""
    if pod.gpu.unreadable:
        return f"{WANTS_SENSE} {pod.gpu.unreadable}"
    wish = wish_of(pod)
    return WANTS_LINKED if wish is not None and wish.is_linked else WANTS_CARDS


def gpu_verdicts(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, aliases: Aliases, gone: Sequence[str] = ()
) -> Codes:
    """`gone` are pods whose cards count as free; the pod's own claims always do."""
    if pod.gpu.unreadable:
        return np.full(len(rows), GpuVerdict.UNREADABLE, np.uint8)
    wish = wish_of(pod)
    if wish is None:
        return np.zeros(len(rows), np.uint8)
    verdicts = _verdicts(wish, twin_columns, aliases, (pod.uid, *gone))
    return np.where(twin_columns.columns["present"], verdicts, _NO_CARDS)[rows]


def points(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights) -> Floats:
    """0..10 on a path of its own, as the article counts: a pod that names no model packs, too."""
    any_card = Wish("", max(1, pod.gpu_cards), 0, 0, is_alone=True, is_linked=False)
    wish = wish_of(pod) or any_card
    return (
        np.zeros(len(rows))
        if pod.gpu.unreadable
        else _packing(wish, pod, twin_columns, rows, weights)
    )


def packing(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights
) -> Floats | None:
    """The same in points of a hundred, weighted; None where energy alone decides."""
    wish = wish_of(pod)
    if wish is None or pod.gpu.unreadable or not weights.binpack:
        return None
    of_ten = _packing(wish, pod, twin_columns, rows, weights)
    return np.asarray(weights.binpack * (of_ten * HIGHEST), np.float64)


def _packing(
    wish: Wish, pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights
) -> Floats:
    seats = _seats(wish, twin_columns, weights.aliases, (pod.uid,))
    if weights.packing == "fit":
        cards = (1 - weights.balance) * seats.snug[rows]
        of_ten = (
            cards + weights.balance * _balance(pod, twin_columns, rows, seats.after)
        ) / HIGHEST
    else:
        of_ten = seats.filled[rows] / HIGHEST
    return np.clip(of_ten - weights.links * seats.breaks[rows], 0.0, HIGHEST)


def _balance(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, after: Floats) -> Floats:
    """100 where cards and cores run out together: a card without cores beside it is nobody's.

    0 where nobody knows the cores: unknown never scores best.
    """
    cores, watts = twin_columns.floats("cores")[rows], twin_columns.floats("cpu_max_w")[rows]
    known = (cores > 0) & (watts > 0)
    asked = np.divide(cores_of(pod), cores, out=np.zeros(len(rows)), where=known)
    taken = np.divide(twin_columns.floats("pods_cpu_w")[rows], watts, out=asked.copy(), where=known)
    apart = np.abs(np.minimum(1.0, asked + taken) * 100 - after[rows])
    return np.where(known, 100 - apart, 0.0)


# --- nodes ------------------------------------------------------------------------------------


def _verdicts(
    wish: Wish, twin_columns: TwinColumns, aliases: Aliases, gone: tuple[str, ...]
) -> Codes:
    """What these pods hold counts as free; cards of one node mean nothing to any other."""
    cards, height = twin_columns.cards, len(twin_columns.columns["present"])
    verdicts, nodes = _kept(wish, cards, height, aliases).verdicts, cards.nodes_of(gone)
    if not len(nodes):
        return verdicts
    return _patched(verdicts, _room(wish, cards.on(nodes, gone), height, aliases).verdicts, nodes)


def _seats(wish: Wish, twin_columns: TwinColumns, aliases: Aliases, gone: tuple[str, ...]) -> Seats:
    cards, height = twin_columns.cards, len(twin_columns.columns["present"])
    seats, nodes = _kept(wish, cards, height, aliases), cards.nodes_of(gone)
    if not len(nodes):
        return seats
    anew = _of_all(wish, cards.on(nodes, gone), height, aliases)
    return Seats(
        _patched(seats.verdicts, anew.verdicts, nodes),
        _patched(seats.filled, anew.filled, nodes),
        _patched(seats.breaks, anew.breaks, nodes),
        _patched(seats.snug, anew.snug, nodes),
        _patched(seats.after, anew.after, nodes),
    )


def _kept(wish: Wish, cards: Cards, height: int, aliases: Aliases) -> Seats:
    """Computed once for some cards and a wish: pods that hold nothing yet are alike in it."""
    key = (wish, aliases, height)
    kept = cards.memo.get(key)
    if isinstance(kept, Seats):
        return kept
    seats = _of_all(wish, cards, height, aliases)
    if len(cards.memo) >= WISHES:
        cards.memo.clear()
    cards.memo[key] = seats
    return seats


def _patched(whole: Column, part: Column, nodes: Ints) -> Column:
    found = whole.copy()
    found[nodes] = part[nodes]
    return found


class _Room(NamedTuple):
    of_model: Bools  # of each card
    fit: Bools
    fits: Bools  # of each row of the board
    verdicts: Codes


def _room(wish: Wish, cards: Cards, height: int, aliases: Aliases) -> _Room:
    of_model = matching(cards, wish.model, aliases) & (cards.ints("node") != NOWHERE)
    fit = of_model & fitting(cards, wish)
    fits = unlinked = _rows_with(cards, fit, cards.ints("bundle"), wish.number, height)
    if wish.is_linked:
        fits = _rows_linked(cards, fit, wish.number, height)
    verdicts = np.full(height, GpuVerdict.NO_CARDS, np.uint8)
    verdicts[unlinked] = GpuVerdict.NOT_LINKED
    verdicts[fits] = GpuVerdict.PASSED
    return _Room(of_model, fit, fits, verdicts)


def _of_all(wish: Wish, cards: Cards, height: int, aliases: Aliases) -> Seats:
    room = _room(wish, cards, height, aliases)
    loose = room.fit & ~precious(cards, wish)
    if wish.is_linked:
        whole = _rows_linked(cards, loose, wish.number, height)
    else:
        whole = _rows_with(cards, loose, cards.ints("bundle"), wish.number, height)
    filled, after = _filled(cards, room.of_model, wish, height)
    snug = filled if wish.is_alone else _snug(cards, room.fit, wish, height)
    return Seats(room.verdicts, filled, room.fits & ~whole, snug, after)


def matching(cards: Cards, model: str, aliases: Aliases) -> Bools:
    """Cards of a model; of any, if none is named."""
    if not model:
        return np.ones(len(cards.states), np.bool_)
    known = cards.numbers.models
    names = np.fromiter((is_model(model, name, aliases) for name in known), np.bool_, len(known))
    found: Bools = names[cards.ints("model")] if len(names) else np.zeros(0, np.bool_)
    return found


def fitting(cards: Cards, wish: Wish) -> Bools:
    total, free = cards.ints("total_mb"), cards.ints("free_mb")
    usable = cards.bools("healthy") & (total > 0)
    if wish.is_alone:
        least = wish.mb if wish.mb else np.maximum(total - DRIVER_MB, 0)
        return usable & cards.bools("idle") & (free >= least) & (total >= wish.mb)
    least = np.maximum(wish.mb, -(-wish.share_milli * total // _CARD_MILLI))
    return usable & (free >= least)


def precious(cards: Cards, wish: Wish) -> Bools:
    """Cards of linked groups that nobody has touched, and that are larger than what is asked."""
    links = cards.ints("link")
    groups = _groups(cards)
    found: Bools = (groups.untouched & (groups.size > wish.number))[links]
    return found


class _Groups(NamedTuple):
    """One value per number of a link."""

    size: Ints
    untouched: Bools


def _groups(cards: Cards) -> _Groups:
    kept = cards.memo.get(_Groups)
    if isinstance(kept, _Groups):
        return kept
    links = cards.ints("link")
    usable = cards.bools("idle") & cards.bools("healthy")
    size = np.bincount(links, minlength=1)
    untouched = np.bincount(links[usable], minlength=len(size)) == size
    untouched[NO_LINK] = False
    cards.memo[_Groups] = _Groups(size, untouched)
    return _Groups(size, untouched)


def _rows_with(cards: Cards, fit: Bools, groups: Ints, count: int, height: int) -> Bools:
    """Rows of the board with so many fitting cards in one group."""
    here = groups[fit]
    enough = np.bincount(here)[here] >= count if len(here) else np.zeros(0, np.bool_)
    found = np.zeros(height, np.bool_)
    found[cards.ints("node")[fit][enough]] = True
    return found


def _rows_linked(cards: Cards, fit: Bools, count: int, height: int) -> Bools:
    links = cards.ints("link")
    return _rows_with(cards, fit & (links != NO_LINK), links, count, height)


def _filled(cards: Cards, of_model: Bools, wish: Wish, height: int) -> tuple[Floats, Floats]:
    """As the article has it: (allocated / total) x 100, of all cards of the model; now and then."""
    at, nothing = cards.ints("node")[of_model], np.zeros(height)
    used = np.bincount(at, cards.ints("used_mb")[of_model], height)
    total = np.bincount(at, cards.ints("total_mb")[of_model], height)
    count = np.bincount(at, minlength=height)
    filled = np.divide(used, total, out=nothing.copy(), where=total > 0) * 100
    card = np.divide(100, count, out=nothing.copy(), where=count > 0)
    if wish.is_alone:
        return filled, np.minimum(100.0, filled + wish.number * card)
    memory = np.divide(100 * wish.mb, total, out=nothing, where=total > 0)
    share = np.maximum(memory, card * wish.share_milli / _CARD_MILLI)
    return filled, np.minimum(100.0, filled + wish.number * share)


def _snug(cards: Cards, fit: Bools, wish: Wish, height: int) -> Floats:
    """Percent of the one card that would be used most with the pod on it."""
    total, found = cards.ints("total_mb")[fit], np.zeros(height)
    wanted = np.maximum(wish.mb, -(-wish.share_milli * total // _CARD_MILLI))
    used = (total - cards.ints("free_mb")[fit] + wanted) / total * 100
    np.maximum.at(found, cards.ints("node")[fit], used)
    return found
