"""What is free of the cards of each node, as a matrix: a row per node, a column per card.

Cards are of the node's model, a name and a size of memory. Of a node with several, only the cards
of the one that sorts first count. The order of rows and columns carries no meaning.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.demand import NodeKind, PoolKinds
from joulie_extender.gpu.fit import DRIVER_MB
from joulie_extender.gpu.free import free_cores
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.shapes import CARD
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.card_columns import NO_NODE, Cards
from joulie_projections.twin.columns import TwinColumns

NO_PLACE = -1
ALIKE = 1.05  # times the cores for each card: nodes that differ by less are of one kind


class Model(NamedTuple):
    name: str
    total_mb: int


class Layout(NamedTuple):
    """Where each card is in the matrix: the same until a card is added, removed or replaced."""

    place: Ints  # of each card counted: its row in the columns of cards
    at: Ints  # the inverse: of each row of these, its place here, or NO_PLACE
    row: Ints  # of each of these, in the matrix
    slot: Ints
    nodes: Ints  # of each row of the matrix: its row in the twins' columns
    of_node: Ints  # the inverse; the last is NO_PLACE, also for rows beyond it
    model: Ints  # of each row, by its place in `models`
    models: tuple[Model, ...]  # sorted
    width: int

    def row_of(self, rows: Ints) -> Ints:
        """The rows of these nodes in the matrix, or NO_PLACE."""
        found: Ints = self.of_node.take(np.minimum(rows, len(self.of_node) - 1))
        return found

    def cards_of(self, row: int) -> slice:
        """Where the cards of a row of the matrix are in `place`."""
        first, last = np.searchsorted(self.row, (row, row + 1)).tolist()
        return slice(first, last)


def layout_of(cards: Cards) -> Layout:
    kept = cards.fixed_memo.get(Layout)
    if not isinstance(kept, Layout):
        kept = cards.fixed_memo[Layout] = _laid_out(cards)
    return kept


def _laid_out(cards: Cards) -> Layout:
    hosts, totals, numbers = (cards.ints(name) for name in ("node", "total_mb", "model"))
    seen = np.flatnonzero((hosts != NO_NODE) & (totals > 0))
    names = list(cards.numbers.models)
    pairs = list(zip(numbers[seen].tolist(), totals[seen].tolist(), strict=True))
    models = sorted({Model(names[number], mb) for number, mb in set(pairs)})
    place = {(cards.numbers.models[each.name], each.total_mb): at for at, each in enumerate(models)}
    of_card = np.array([place[pair] for pair in pairs], np.int64)
    nodes, row = np.unique(hosts[seen], return_inverse=True)
    model = np.full(len(nodes), len(models))
    np.minimum.at(model, row, of_card)
    counted = of_card == model[row]
    seen, row = seen[counted], row[counted]
    order = np.argsort(row, kind="stable")
    seen, row = seen[order], row[order]
    slot = np.arange(len(row)) - np.searchsorted(row, row)
    at = np.full(len(hosts), NO_PLACE)
    at[seen] = np.arange(len(seen))
    of_node = np.full(int(nodes.max(initial=0)) + 2, NO_PLACE)
    of_node[nodes] = np.arange(len(nodes))
    width = int(slot.max(initial=0)) + 1
    return Layout(seen, at, row, slot, nodes, of_node, model, tuple(models), width)


class _LastRests(NamedTuple):
    free_mb: Ints
    idle: Bools
    rests: Ints


def rests_of(cards: Cards) -> Ints:
    """Milli of each card that are free; a card in use is never whole.

    Only cards whose use differs from that of the last ones that were asked about are computed.
    """
    kept = cards.memo.get(rests_of)
    if isinstance(kept, np.ndarray):
        return kept
    layout, last = layout_of(cards), cards.fixed_memo.get(rests_of)
    free, idle = cards.ints("free_mb"), cards.bools("idle")
    if isinstance(last, _LastRests):
        rests = last.rests.copy()
        at = layout.at[np.flatnonzero((free != last.free_mb) | (idle != last.idle))]
        at = at[at != NO_PLACE]
    else:
        rests = np.zeros((len(layout.nodes), layout.width), np.int64)
        at = np.arange(len(layout.place))
    place = layout.place[at]
    total, healthy = cards.ints("total_mb")[place], cards.bools("healthy")[place]
    rests[layout.row[at], layout.slot[at]] = _milli(total, free[place], idle[place], healthy)
    cards.memo[rests_of] = rests
    cards.fixed_memo[rests_of] = _LastRests(free, idle, rests)
    return rests


def _milli(total: Ints, free: Ints, idle: Bools, healthy: Bools) -> Ints:
    part = np.minimum(free * CARD // np.maximum(total, 1), CARD - 1)
    is_whole = idle & (free >= total - DRIVER_MB)
    found: Ints = np.where(is_whole, CARD, part) * healthy
    return found


class FreeCards(NamedTuple):
    """What is free on some nodes, as a measure of costs takes it."""

    kinds: PoolKinds
    model: Ints
    rest: Ints
    free_milli: Ints
    free_memory: Ints  # kube-scheduler has compared it
    unit: Ints | None  # milli of a card; None: pods request whole cards of each node

    def allowed(self, models: Sequence[str]) -> Bools:
        return self.kinds.allowed(models[0])


def free_of(twin_columns: TwinColumns, kinds: PoolKinds) -> FreeCards:
    """On all nodes with cards, in the order of the layout."""
    layout, rests = layout_of(twin_columns.cards), rests_of(twin_columns.cards)
    milli = free_milli(twin_columns, layout.nodes)
    nothing = np.zeros(len(milli), np.int64)
    return FreeCards(kinds, layout.model, rests, milli, nothing, units_of(twin_columns))


def free_without(
    twin_columns: TwinColumns, kinds: PoolKinds, at: int, uid: str
) -> tuple[FreeCards, slice]:
    """On one row of the layout, as if this pod had claimed nothing, and the places of its cards."""
    cards = twin_columns.cards
    layout, row = layout_of(cards), np.array([at])
    milli, here = free_milli(twin_columns, layout.nodes[row]), layout.cards_of(at)
    rests = rests_of(cards)[row]
    if uid in cards.holders:
        alone = cards.on(layout.nodes[row], [uid])
        rests = rests_of(alone)
    nothing, units = np.zeros(1, np.int64), units_of(twin_columns)
    unit = None if units is None else units[row]
    return FreeCards(kinds, layout.model[row], rests, milli, nothing, unit), here


def units_of(twin_columns: TwinColumns) -> Ints | None:
    """Milli of a card that pods request as one unit, by the rows of the layout.

    None if all units are cards. Where each unit is reported as a card of its own, it is one, too.
    """
    cards = twin_columns.cards
    units, milli = twin_columns.floats("gpus"), twin_columns.ints("unit_milli")
    kept = cards.fixed_memo.get(units_of)
    if isinstance(kept, _KeptUnits) and kept.units is units and kept.milli is milli:
        return kept.found
    layout, found = layout_of(cards), None
    if (milli[layout.nodes] < CARD).any():
        counted = np.bincount(layout.row, minlength=len(layout.nodes))
        found = np.where(counted < units[layout.nodes], milli[layout.nodes], CARD)
    cards.fixed_memo[units_of] = _KeptUnits(units, milli, found)
    return found


class _KeptUnits(NamedTuple):
    units: object
    milli: object
    found: Ints | None


def free_milli(twin_columns: TwinColumns, rows: Ints) -> Ints:
    """Of cores."""
    found: Ints = np.rint(free_cores(twin_columns, rows) * 1000).astype(np.int64)
    return found


def kinds_of(twin_columns: TwinColumns, aliases: Aliases) -> PoolKinds:
    """Computed once for these cards and cores."""
    cards, cores = twin_columns.cards, twin_columns.floats("cores")
    kept = cards.fixed_memo.get(kinds_of)
    if isinstance(kept, _KeptKinds) and kept.cores is cores and kept.kinds.aliases == aliases:
        return kept.kinds
    found = _kinds(cards, cores, aliases)
    cards.fixed_memo[kinds_of] = _KeptKinds(cores, found)
    return found


class _KeptKinds(NamedTuple):
    cores: object
    kinds: PoolKinds


def _kinds(cards: Cards, cores: Floats, aliases: Aliases) -> PoolKinds:
    layout = layout_of(cards)
    count = np.bincount(layout.row, minlength=len(layout.nodes))
    milli = np.rint(cores[layout.nodes] * 1000).astype(np.int64)
    nodes = Counter[NodeKind]()
    for kind in zip(layout.model.tolist(), milli.tolist(), count.tolist(), strict=True):
        nodes[NodeKind(*kind)] += kind[-1]
    kinds = tuple(sorted(nodes))
    of_card = layout.model[layout.row]
    return PoolKinds(
        tuple(model.name for model in layout.models),
        tuple(model.total_mb for model in layout.models),
        tuple(np.bincount(of_card, minlength=len(layout.models)).tolist()),
        kinds,
        aliases,
        tuple(nodes[kind] for kind in kinds),
        _usual_need(milli, count),
    )


def _usual_need(milli: Ints, cards: Ints) -> float:
    """Cores for each card of the kind of node with the most cards; of equal ones, the most. Nodes
    that reserve a little more or less for themselves are of one kind."""
    known = np.flatnonzero(milli > 0)
    if not len(known):
        return 0.0
    ratio = milli[known] / CARD / np.maximum(cards[known], 1)
    order = np.argsort(ratio, kind="stable")
    ratio, known = ratio[order], known[order]
    kind = np.cumsum(np.append(False, ratio[1:] > ALIKE * ratio[:-1]))
    cores, count = (np.bincount(kind, each[known]) for each in (milli, cards))
    most = np.flatnonzero(count == count.max())[-1]
    return float(cores[most] / CARD / count[most])
