"""Which nodes have the GPUs that a pod requests, and how well it would pack them.

A request for whole cards gets them exclusively, as the device plugin allocates them; a request for
a share or for memory shares a card. The pod needs that many fitting cards of one model, linked to
each other if it requests NVLink.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_extender.gpu.models import Aliases, is_model
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.devices import is_by_dra
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.card_columns import NO_LINK, NO_NODE, Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import cores_of

Codes = npt.NDArray[np.uint8]
Column = TypeVar("Column", bound=npt.NDArray[Any])
_CARD_MILLI = 1000
DRIVER_MB = 1024  # memory that a driver may occupy on an unused card
CACHED_REQUESTS = 64  # cached until the cards change
HIGHEST = 10.0  # highest score of an extender
FRAGMENTATION = "fragmentation"  # a packing, see `expected_loss`


class GpuVerdict(IntEnum):
    """Codes follow those of the energy filter; the decision log keeps one per candidate."""

    PASSED = 0
    NO_CARDS = 16
    NOT_LINKED = 17
    UNREADABLE = 18


# Fixed sentences without names, numbers or "%", one for each kind of pod.
WANTS_CARDS = "the node has not the healthy, free GPU cards of one model that the pod asks for"
WANTS_LINKED = "the node has not the healthy, free and linked GPU cards that the pod asks for"
UNREADABLE_ANNOTATION = "an annotation of the pod about GPUs cannot be read:"


_NO_CARDS = np.uint8(GpuVerdict.NO_CARDS)


class GpuWeights(NamedTuple):
    binpack: float = 0.3  # of the packing, in a score that is mostly about energy
    links: float = 1.0  # points of ten that breaking up a whole group of linked cards costs
    aliases: Aliases = ()
    packing: str = "share"  # as the article counts, or "fit", or "fragmentation"
    balance: float = 0.4  # of what "fit" says, the part that cores beside the cards have
    resources: str = ",".join(GPU_RESOURCES)  # resource names of GPUs, applied when pods are parsed


@dataclass(frozen=True, kw_only=True)
class PackingWeights:
    gpu: GpuWeights = GpuWeights()


class GpuRequest(NamedTuple):
    """What a pod requests of each of its cards; pods with equal requests share cached results."""

    model: str
    number: int  # of cards
    mb: int
    share_milli: int
    is_alone: bool  # no other pod may use the card
    is_linked: bool
    is_by_dra: bool = False  # kube-scheduler gives the cards out


class GpuColumns(NamedTuple):
    """One value per row."""

    verdicts: Codes  # as if all nodes were present
    filled: Floats  # percent of the memory of all cards of the model that is used
    breaks: Bools  # a whole group of linked cards would be broken up
    fullest: Floats  # the same of the card that a share would fill most; of whole cards, as above
    after: Floats  # percent of the memory of all cards of the model, once the pod is there


def gpu_request_of(pod: PodAsk) -> GpuRequest | None:
    """None if the pod requests nothing of its cards: then no rule applies."""
    return _request_of(pod) if asks(pod) else None


def held_request_of(pod: PodAsk) -> GpuRequest | None:
    """The cards that a running pod holds, whether or not it requests something of them."""
    return _request_of(pod) if asks(pod) or pod.gpu_milli else None


def _request_of(pod: PodAsk) -> GpuRequest:
    asked = pod.gpu
    milli = asked.share_milli or (0 if pod.gpu_cards else pod.gpu_milli)
    count = pod.gpu_cards or max(1, -(-milli // _CARD_MILLI))
    is_linked = asked.topology == "nvlink" and count > 1
    share = asked.share_milli or -(-milli // count)
    is_alone = not share and (pod.gpu_cards > 0 or not asked.vram_mb)
    if is_by_dra(pod):  # which cards are free, and linked, kube-scheduler has compared
        return GpuRequest(asked.model, count, asked.vram_mb, 0, True, False, is_by_dra=True)
    return GpuRequest(asked.model, count, asked.vram_mb, share, is_alone, is_linked)


def asks(pod: PodAsk) -> bool:
    asked = pod.gpu
    return bool(
        asked.model or asked.vram_mb or asked.topology or asked.share_milli or asked.unreadable
    )


def wanted_mb(request: GpuRequest, total_mb: int) -> int:
    """The memory that the pod would claim of a card of this size."""
    if request.is_alone:
        return total_mb
    return max(request.mb, -(-request.share_milli * total_mb // _CARD_MILLI))


def reason_of(pod: PodAsk) -> str:
    """The one reason for all refused nodes; it depends on the pod alone."""
    if pod.gpu.unreadable:
        return f"{UNREADABLE_ANNOTATION} {pod.gpu.unreadable}"
    request = gpu_request_of(pod)
    return WANTS_LINKED if request is not None and request.is_linked else WANTS_CARDS


def gpu_verdicts(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, aliases: Aliases, gone: Sequence[str] = ()
) -> Codes:
    """`gone` are pods whose cards count as free; the pod's own claims always do."""
    if pod.gpu.unreadable:
        return np.full(len(rows), GpuVerdict.UNREADABLE, np.uint8)
    request = gpu_request_of(pod)
    if request is None:
        return np.zeros(len(rows), np.uint8)
    verdicts = _verdicts(request, twin_columns, aliases, (pod.uid, *gone))
    return np.where(twin_columns.columns["present"], verdicts, _NO_CARDS)[rows]


def points(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights) -> Floats:
    """0 to 10 under /gpu, by the article's formula: a pod that names no model is packed, too."""
    any_card = GpuRequest("", max(1, pod.gpu_cards), 0, 0, is_alone=True, is_linked=False)
    request = gpu_request_of(pod) or any_card
    return (
        np.zeros(len(rows))
        if pod.gpu.unreadable
        else _packing(request, pod, twin_columns, rows, weights)
    )


def packing(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights
) -> Floats | None:
    """The same on the scale of 100, weighted; None if the pod requests nothing of its cards."""
    request = gpu_request_of(pod)
    if request is None or pod.gpu.unreadable or not weights.binpack:
        return None
    of_ten = _packing(request, pod, twin_columns, rows, weights)
    return np.asarray(weights.binpack * (of_ten * HIGHEST), np.float64)


def _packing(
    request: GpuRequest, pod: PodAsk, twin_columns: TwinColumns, rows: Ints, weights: GpuWeights
) -> Floats:
    columns = _gpu_columns(request, twin_columns, weights.aliases, (pod.uid,))
    if weights.packing == "fit":
        cards = (1 - weights.balance) * columns.fullest[rows]
        of_ten = (
            cards + weights.balance * _balance(pod, twin_columns, rows, columns.after)
        ) / HIGHEST
    else:
        of_ten = columns.filled[rows] / HIGHEST
    return np.clip(of_ten - weights.links * columns.breaks[rows], 0.0, HIGHEST)


def breaks_group(
    pod: PodAsk, twin_columns: TwinColumns, rows: Ints, aliases: Aliases
) -> Bools | bool:
    """Whether the pod would break up a whole group of linked cards, by candidate."""
    request = held_request_of(pod)
    if request is None or pod.gpu.unreadable or not twin_columns.cards.numbers.links:
        return False
    columns = _gpu_columns(request, twin_columns, aliases, (pod.uid,))
    found: Bools = columns.breaks[rows]
    return found


def _balance(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, after: Floats) -> Floats:
    """100 where cards and cores run out together: cards cannot be used without cores beside them.

    0 where the cores are unknown: a node without data never scores best.
    """
    cores, watts = twin_columns.floats("cores")[rows], twin_columns.floats("cpu_max_w")[rows]
    known = cores > 0  # then the watts are known or guessed
    asked = np.divide(cores_of(pod), cores, out=np.zeros(len(rows)), where=known)
    taken = np.divide(twin_columns.floats("pods_cpu_w")[rows], watts, out=asked.copy(), where=known)
    apart = np.abs(np.minimum(1.0, asked + taken) * 100 - after[rows])
    return np.where(known, 100 - apart, 0.0)


# --- nodes ------------------------------------------------------------------------------------


def _verdicts(
    request: GpuRequest, twin_columns: TwinColumns, aliases: Aliases, gone: tuple[str, ...]
) -> Codes:
    """The cards held by `gone` count as free; cards of one node do not affect any other."""
    cards, height = twin_columns.cards, len(twin_columns.columns["present"])
    verdicts, nodes = _cached(request, cards, height, aliases).verdicts, cards.nodes_of(gone)
    if not len(nodes):
        return verdicts
    return _patched(
        verdicts, _fit_of(request, cards.on(nodes, gone), height, aliases).verdicts, nodes
    )


def _gpu_columns(
    request: GpuRequest, twin_columns: TwinColumns, aliases: Aliases, gone: tuple[str, ...]
) -> GpuColumns:
    cards, height = twin_columns.cards, len(twin_columns.columns["present"])
    columns, nodes = _cached(request, cards, height, aliases), cards.nodes_of(gone)
    if not len(nodes):
        return columns
    return _with_nodes(columns, _computed(request, cards.on(nodes, gone), height, aliases), nodes)


def _with_nodes(columns: GpuColumns, updated: GpuColumns, nodes: Ints) -> GpuColumns:
    return GpuColumns(
        _patched(columns.verdicts, updated.verdicts, nodes),
        _patched(columns.filled, updated.filled, nodes),
        _patched(columns.breaks, updated.breaks, nodes),
        _patched(columns.fullest, updated.fullest, nodes),
        _patched(columns.after, updated.after, nodes),
    )


def _cached(request: GpuRequest, cards: Cards, height: int, aliases: Aliases) -> GpuColumns:
    """Computed once per set of cards and request: pods without claims share the result."""
    key = (request, aliases, height)
    kept = cards.memo.get(key)
    if isinstance(kept, GpuColumns):
        return kept
    if cards.taken is not None:
        before, _, nodes = cards.taken
        columns = _cached(request, before, height, aliases)
        fresh = _computed(request, cards.on(nodes), height, aliases)
        columns = _with_nodes(columns, fresh, nodes)
    else:
        columns = _computed(request, cards, height, aliases)
    if len(cards.memo) >= CACHED_REQUESTS:
        cards.memo.clear()
    cards.memo[key] = columns
    return columns


def _patched(whole: Column, part: Column, nodes: Ints) -> Column:
    found = whole.copy()
    found[nodes] = part[nodes]
    return found


class _Fit(NamedTuple):
    of_model: Bools  # of each card
    fit: Bools
    fits: Bools  # of each row
    verdicts: Codes


def _fit_of(request: GpuRequest, cards: Cards, height: int, aliases: Aliases) -> _Fit:
    of_model = matching(cards, request.model, aliases) & (cards.ints("node") != NO_NODE)
    fit = of_model & fitting(cards, request)
    fits = unlinked = _rows_with(cards, fit, cards.ints("bundle"), request.number, height)
    if request.is_linked:
        fits = _rows_linked(cards, fit, request.number, height)
    verdicts = np.full(height, GpuVerdict.NO_CARDS, np.uint8)
    verdicts[unlinked] = GpuVerdict.NOT_LINKED
    verdicts[fits] = GpuVerdict.PASSED
    return _Fit(of_model, fit, fits, verdicts)


def _computed(request: GpuRequest, cards: Cards, height: int, aliases: Aliases) -> GpuColumns:
    found = _fit_of(request, cards, height, aliases)
    loose = found.fit & ~untouched_group(cards, request)
    if request.is_linked:
        whole = _rows_linked(cards, loose, request.number, height)
    else:
        whole = _rows_with(cards, loose, cards.ints("bundle"), request.number, height)
    filled, after = _filled(cards, found.of_model, request, height)
    fullest = filled if request.is_alone else _fullest(cards, found.fit, request, height)
    return GpuColumns(found.verdicts, filled, found.fits & ~whole, fullest, after)


def matching(cards: Cards, model: str, aliases: Aliases) -> Bools:
    """Cards of a model; all cards if no model is named."""
    if not model:
        return np.ones(len(cards.states), np.bool_)
    known = cards.numbers.models
    names = np.fromiter((is_model(model, name, aliases) for name in known), np.bool_, len(known))
    found: Bools = names[cards.ints("model")]
    return found


def fitting(cards: Cards, request: GpuRequest) -> Bools:
    """Of cards that kube-scheduler gives out, it has compared which are free."""
    total, free = cards.ints("total_mb"), cards.ints("free_mb")
    usable, by_dra = cards.bools("healthy") & (total > 0), cards.bools("by_dra")
    of_size: Bools = total >= request.mb
    if request.is_by_dra:
        return of_size
    if request.is_alone:
        least = request.mb if request.mb else total - DRIVER_MB
        found: Bools = usable & cards.bools("idle") & (free >= least)
        return np.where(by_dra, of_size, found)
    usable &= ~by_dra
    least = np.maximum(request.mb, -(-request.share_milli * total // _CARD_MILLI))
    return usable & (free >= least)


def untouched_group(cards: Cards, request: GpuRequest) -> Bools:
    """Cards in linked groups without any user, where the group is larger than the request."""
    links = cards.ints("link")
    groups = _groups(cards)
    found: Bools = (groups.untouched & (groups.size > request.number))[links]
    return found


class _Groups(NamedTuple):
    """One value per link number."""

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
    """Rows with `count` fitting cards in one group."""
    here = groups[fit]
    enough = np.bincount(here)[here] >= count if len(here) else np.zeros(0, np.bool_)
    found = np.zeros(height, np.bool_)
    found[cards.ints("node")[fit][enough]] = True
    return found


def _rows_linked(cards: Cards, fit: Bools, count: int, height: int) -> Bools:
    links = cards.ints("link")
    return _rows_with(cards, fit & (links != NO_LINK), links, count, height)


def _filled(
    cards: Cards, of_model: Bools, request: GpuRequest, height: int
) -> tuple[Floats, Floats]:
    """By the article's formula, (allocated / total) x 100 over all cards of the model: now, and
    with the pod.
    """
    at, nothing = cards.ints("node")[of_model], np.zeros(height)
    used = np.bincount(at, cards.ints("used_mb")[of_model], height)
    total = np.bincount(at, cards.ints("total_mb")[of_model], height)
    count = np.bincount(at, minlength=height)
    filled = np.divide(used, total, out=nothing.copy(), where=total > 0) * 100
    card = np.divide(100, count, out=nothing.copy(), where=count > 0)
    if request.is_alone:
        return filled, np.minimum(100.0, filled + request.number * card)
    memory = np.divide(100 * request.mb, total, out=nothing, where=total > 0)
    share = np.maximum(memory, card * request.share_milli / _CARD_MILLI)
    return filled, np.minimum(100.0, filled + request.number * share)


def _fullest(cards: Cards, fit: Bools, request: GpuRequest, height: int) -> Floats:
    """Usage in percent of the card that would be fullest with the pod on it."""
    total, found = cards.ints("total_mb")[fit], np.zeros(height)
    wanted = np.maximum(request.mb, -(-request.share_milli * total // _CARD_MILLI))
    used = (total - cards.ints("free_mb")[fit] + wanted) / total * 100
    np.maximum.at(found, cards.ints("node")[fit], used)
    return found
