"""What a placement costs the GPU pods that arrive later, and the points that follow from it.

The tables follow what pods asked for until now, as the state has it, and the nodes that there are:
a replay computes the same.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.demand import (
    InUse,
    PoolKinds,
    cores_run_out,
    need_of,
    share_of,
    terms_of,
    wanted_cores,
    worth_of,
)
from joulie_extender.gpu.fit import GpuWeights, asks
from joulie_extender.gpu.fragmentation import NEVER, CostCache, Costs, Measure
from joulie_extender.gpu.free_cards import (
    NO_PLACE,
    FreeCards,
    free_milli,
    free_of,
    free_without,
    kinds_of,
    layout_of,
    rests_of,
    units_of,
)
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.pods.devices import is_by_dra
from joulie_projections.state.gpu_arrivals import GpuShape, shape_of
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns

UNUSABLE = 1000.0  # the loss, in GPUs, where it is unknown or the pod does not fit
MOST_POINTS = 10.0
_NO_GPU = GpuShape(0, 0, 0)


class Losses(NamedTuple):
    """In GPUs, by candidate."""

    expected: Floats  # what later pods lose there beyond the least on any candidate
    named: Floats  # the part that is of pods which name the node's model
    share_in_use: float  # of the GPUs of all nodes whose cores are known


def expected_loss(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, gpu: GpuWeights) -> Floats:
    return _loss_at(_places(twin_columns, rows), pod, twin_columns, rows, gpu)


def losses_of(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, gpu: GpuWeights) -> Losses:
    place, asked, kept = (
        _places(twin_columns, rows),
        _asked_of(pod),
        _tables_of(twin_columns, gpu),
    )
    expected = _loss_at(place, pod, twin_columns, rows, gpu)
    if asked.models:
        named = np.zeros(len(rows))
    else:
        named = kept.prices.take(place) * (_milli_of(asked, kept.units, place) / CARD)
    return Losses(expected, named, kept.share_in_use)


def prepare(twin_columns: TwinColumns, gpu: GpuWeights) -> None:
    """Computes in advance what does not depend on a pod."""
    _tables_of(twin_columns, gpu)


def points_of(loss: Floats) -> Floats:
    """10 for the least loss, and one less whenever a thousandth of a GPU and the loss double.

    Piecewise linear between powers of two, so that every machine computes the same.
    """
    part, power = np.frexp(1.0 + loss * CARD)
    points: Floats = MOST_POINTS - ((power - 1) + (2 * part - 1))
    return np.maximum(points, 0.0)


def card_losses(
    pod: PodAsk, twin_columns: TwinColumns, row: int, gpu: GpuWeights
) -> Mapping[str, float]:
    """In milli of a card, by the uuid of each card of a node that its loss is known of."""
    asked, kept = _asked_of(pod), _tables_of(twin_columns, gpu)
    cards, layout = twin_columns.cards, layout_of(twin_columns.cards)
    at = int(layout.row_of(np.array([row]))[0])
    if at == NO_PLACE:
        return {}
    free, here = free_without(twin_columns, kept.kinds, at, pod.uid)
    shape = asked.on(kept.kinds.total_mb[int(free.model[0])])
    by_card = kept.side.measure.by_card(free, shape, 0)[layout.slot[here]]
    places = layout.place[here].tolist()
    return dict(zip((cards.uuids[card] for card in places), by_card.tolist(), strict=True))


class _Asked(NamedTuple):
    """Pods with equal requests share cached costs."""

    shape: GpuShape
    models: tuple[str, ...]
    in_units: bool  # of a resource alone: on a node whose units are not cards, it takes these

    def on(self, total_mb: int) -> Shape:
        share = share_of(self.shape.share, self.shape.mb, total_mb)
        return Shape(self.shape.milli, 0, self.shape.cards, share, self.models)

    def of_units(self, unit: int) -> Shape:
        """Each on a card of its own: NVIDIA's device plugin distributes them."""
        return Shape(self.shape.milli, 0, self.shape.cards, unit)


def _asked_of(pod: PodAsk) -> _Asked:
    shape = shape_of(pod) or _NO_GPU._replace(milli=pod.cpu_milli)
    in_units = pod.gpu_cards > 0 and not asks(pod) and not is_by_dra(pod)
    return _Asked(shape, (pod.gpu.model,) if pod.gpu.model else (), in_units)


def _milli_of(asked: _Asked, units: Ints | None, place: Ints) -> Ints | int:
    """Of cards that the pod takes, by candidate."""
    if units is None or not asked.in_units:
        return asked.on(0).gpu_milli
    return asked.shape.cards * np.append(units, CARD).take(place)


def _places(twin_columns: TwinColumns, rows: Ints) -> Ints:
    return layout_of(twin_columns.cards).row_of(rows)


def _loss_at(
    place: Ints, pod: PodAsk, twin_columns: TwinColumns, rows: Ints, gpu: GpuWeights
) -> Floats:
    """`place` is where the rows are in the layout.

    A node without cards or cores that are known never scores best.
    """
    has_cores = twin_columns.floats("cores").take(rows) > 0
    known = has_cores & (place != NO_PLACE) & twin_columns.columns["present"].take(rows)
    if not known.any():
        return np.full(len(rows), UNUSABLE)
    cost = np.where(known, _costs_of(pod, twin_columns, gpu).take(place), NEVER)
    least = cost.min()
    if least >= NEVER:
        return np.full(len(rows), UNUSABLE)
    found: Floats = np.minimum((cost - least) / CARD, UNUSABLE)
    return found


def _costs_of(pod: PodAsk, twin_columns: TwinColumns, gpu: GpuWeights) -> Floats:
    """In milli of a card, by the rows of the layout. What the pod has claimed itself is free."""
    asked, kept = _asked_of(pod), _tables_of(twin_columns, gpu)
    side = kept.side
    costs = side.cache.of(asked).cost  # later calls write to it
    own = twin_columns.cards.nodes_of([pod.uid])
    if len(own):
        costs = costs.copy()
    at = layout_of(twin_columns.cards).row_of(own)
    for row in at[at != NO_PLACE].tolist():
        free, _ = free_without(twin_columns, kept.kinds, row, pod.uid)
        costs[row] = _evaluated(side.measure, free, asked, np.arange(1)).cost[0]
    return costs


def _evaluated(measure: Measure, free: FreeCards, asked: _Asked, rows: Ints) -> Costs:
    if free.unit is not None and asked.in_units:
        return _of_units(measure, free, asked, rows)
    if not asked.shape.mb:
        return measure.costs(free, asked.on(0), rows)
    costs = Costs(np.full(len(rows), NEVER), np.zeros(len(rows), np.int64))
    for model, total_mb in enumerate(free.kinds.total_mb):  # as much memory, other parts of a card
        at = np.flatnonzero(free.model[rows] == model)
        if len(at):
            costs.cost[at], costs.card[at] = measure.costs(free, asked.on(total_mb), rows[at])
    return costs


def _of_units(measure: Measure, free: FreeCards, asked: _Asked, rows: Ints) -> Costs:
    """kube-scheduler has compared the units. Without room on free parts of cards, a unit is one of
    a card in use, and takes nothing that is free but cores.
    """
    assert free.unit is not None
    units = free.unit[rows]
    costs = Costs(np.full(len(rows), NEVER), np.zeros(len(rows), np.int64))
    for unit in np.unique(units).tolist():
        at = np.flatnonzero(units == unit)
        found = measure.costs(free, asked.of_units(unit), rows[at], is_spread=unit < CARD)
        if unit < CARD:
            cores = measure.costs(free, Shape(asked.shape.milli, 0, 0, 0), rows[at])
            found = found._replace(cost=np.where(found.cost < NEVER, found.cost, cores.cost))
        costs.cost[at], costs.card[at] = found
    return costs


class _Side(NamedTuple):
    measure: Measure
    cache: CostCache[_Asked]


class _Tables:
    """What is kept while demand is not renewed, and no node or card is added or removed.

    Costs of a row depend on this row alone, and on whether cores run out, so that rows which did
    not change since another position have the costs that would be computed again.
    """

    def __init__(self, twin_columns: TwinColumns, kinds: PoolKinds) -> None:
        self.demand, self.kinds = twin_columns.gpu_demand, kinds
        self._terms = terms_of(self.demand, kinds, worth_of(self.demand.priced, kinds))
        self._mean = need_of(self.demand.arrivals, kinds)
        free = free_of(twin_columns, kinds)
        self._free = free._replace(rest=free.rest.copy(), free_milli=free.free_milli.copy())
        self._seen = _Seen.of(twin_columns)
        self._all = _Capacity.of(twin_columns)
        self._sides = dict[bool, _Side]()
        self._in_use = self._all.in_use(self._free)
        self._is_short_of_cores = self._cores_run_out()
        # Of the model of each row, per GPU; the last is that of NO_PLACE.
        self.prices = np.append(self._terms.price[free.model], 0.0)

    def is_of(self, twin_columns: TwinColumns, kinds: PoolKinds) -> bool:
        is_same = self.kinds is kinds and self.demand is twin_columns.gpu_demand
        return is_same and self.units is units_of(twin_columns)

    @property
    def units(self) -> Ints | None:
        return self._free.unit

    @property
    def side(self) -> _Side:
        """Both sides are kept: where cores just suffice, each pod may change it."""
        is_short = self._is_short_of_cores
        if is_short not in self._sides:
            need = wanted_cores(self._mean, self.kinds, is_short_of_cores=is_short)
            measure = Measure(self._terms._replace(need=need))
            evaluate = partial(_evaluated, measure, self._free)
            self._sides[is_short] = _Side(measure, CostCache(evaluate, len(self._free.model)))
        return self._sides[is_short]

    def follow(self, twin_columns: TwinColumns) -> None:
        seen = _Seen.of(twin_columns)
        changed = self._rests(seen.rests) | self._cores(twin_columns, seen)
        self._seen = seen
        for side in self._sides.values():
            for row in changed:
                side.cache.change(row)
        if changed:
            self._in_use = self._all.in_use(self._free)
            self._is_short_of_cores = self._cores_run_out()

    @property
    def share_in_use(self) -> float:
        used = self._in_use
        return used.gpu / used.all_gpu if used.all_gpu else 0.0

    def _cores_run_out(self) -> bool:
        """Integers: the same in any order of nodes and cards."""
        return cores_run_out(self._in_use, self._mean)

    def _rests(self, rests: Ints) -> set[int]:
        """Takes what is free of cards, and tells the rows where it is other than before."""
        if rests is self._seen.rests:
            return set()
        at = np.flatnonzero(rests != self._free.rest)
        self._free.rest.flat[at] = rests.flat[at]
        return set((at // rests.shape[1]).tolist())

    def _cores(self, twin_columns: TwinColumns, seen: "_Seen") -> set[int]:
        if seen.pods_w is self._seen.pods_w and seen.cpu_w is self._seen.cpu_w:
            return set()
        differs = np.flatnonzero(
            (seen.pods_w != self._seen.pods_w) | (seen.cpu_w != self._seen.cpu_w)
        )
        layout = layout_of(twin_columns.cards)
        at = layout.row_of(differs)
        at = at[at != NO_PLACE]
        self._free.free_milli[at] = free_milli(twin_columns, layout.nodes[at])
        return set(at.tolist())


class _Capacity(NamedTuple):
    """Of the nodes whose cores are known."""

    rows: Ints | slice  # of the layout
    milli: Ints  # of cores, by row
    all_milli: int
    all_gpu: int  # milli of cards

    @classmethod
    def of(cls, twin_columns: TwinColumns) -> "_Capacity":
        layout = layout_of(twin_columns.cards)
        milli = np.rint(twin_columns.floats("cores")[layout.nodes] * 1000).astype(np.int64)
        known = np.flatnonzero(milli > 0)
        cards = int(np.bincount(layout.row, minlength=len(milli))[known].sum())
        rows = known if len(known) < len(milli) else slice(None)  # a copy takes longer
        return cls(rows, milli[rows], int(milli.sum()), cards * CARD)

    def in_use(self, free: FreeCards) -> InUse:
        used = self.milli - free.free_milli[self.rows]
        return InUse(
            milli=int(np.add.reduce(used)),
            all_milli=self.all_milli,
            gpu=self.all_gpu - int(np.add.reduce(free.rest[self.rows], None)),
            all_gpu=self.all_gpu,
            on_each=int(np.minimum.reduce(used)) * len(used) if len(used) else 0,
        )


class _Seen(NamedTuple):
    """What the free cores and cards were computed of."""

    rests: Ints
    pods_w: Floats
    cpu_w: Floats

    @classmethod
    def of(cls, twin_columns: TwinColumns) -> "_Seen":
        load, most = (twin_columns.floats(name) for name in ("pods_cpu_w", "cpu_max_w"))
        return cls(rests_of(twin_columns.cards), load, most)


def _tables_of(twin_columns: TwinColumns, gpu: GpuWeights) -> _Tables:
    kinds, memo = kinds_of(twin_columns, gpu.aliases), twin_columns.cards.fixed_memo
    kept = memo.get(_Tables)
    if isinstance(kept, _Tables) and kept.is_of(twin_columns, kinds):
        kept.follow(twin_columns)
        return kept
    found = memo[_Tables] = _Tables(twin_columns, kinds)
    return found
