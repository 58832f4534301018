"""What a placement costs the GPU pods that arrive later, and the points that follow from it.

The tables follow what pods asked for until now, as the state has it, and the nodes that there are:
a replay computes the same.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.demand import PoolKinds, share_of, terms_of, worth_of
from joulie_extender.gpu.fragmentation import NEVER, Costs, Measure
from joulie_extender.gpu.free_cards import (
    NO_PLACE,
    free_of,
    kinds_of,
    layout_of,
    rests_of,
)
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.state.gpu_arrivals import Counts, GpuDemand, GpuShape, shape_of
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns

UNUSABLE = 1000.0  # the loss, in GPUs, where it is unknown or the pod does not fit
MOST_POINTS = 10.0
_NO_GPU = GpuShape(0, 0, 0)


def expected_loss(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, aliases: Aliases) -> Floats:
    """In GPUs, by candidate: what later pods lose there beyond the least on any candidate."""
    found = np.full(len(rows), UNUSABLE)
    at = np.flatnonzero(_is_known(twin_columns, rows))
    cost = costs_of(pod, twin_columns, rows[at], aliases).cost if len(at) else found[at]
    least = cost.min(initial=NEVER)
    if least < NEVER:
        found[at] = np.minimum((cost - least) / CARD, UNUSABLE)
    return found


def _is_known(twin_columns: TwinColumns, rows: Ints) -> Bools:
    """A node without cards or cores that are known never scores best."""
    has_cards = layout_of(twin_columns.cards).row_of(rows) != NO_PLACE
    has_cores = twin_columns.floats("cores").take(rows) > 0
    found: Bools = has_cards & has_cores & twin_columns.columns["present"].take(rows)
    return found


def points_of(loss: Floats) -> Floats:
    """10 for the least loss, and one less whenever a thousandth of a GPU and the loss double.

    Piecewise linear between powers of two, so that every machine computes the same.
    """
    part, power = np.frexp(1.0 + loss * CARD)
    points: Floats = MOST_POINTS - ((power - 1) + (2 * part - 1))
    return np.where(loss < UNUSABLE, np.maximum(points, 0.0), 0.0)


def costs_of(pod: PodAsk, twin_columns: TwinColumns, rows: Ints, aliases: Aliases) -> Costs:
    """In milli of a card; `rows` are nodes with cards."""
    kinds = kinds_of(twin_columns, aliases)
    measure = measure_of(twin_columns, kinds)
    free = free_of(twin_columns, kinds, rows, pod.uid)
    asked = shape_of(pod) or _NO_GPU._replace(milli=pod.cpu_milli)
    if not asked.mb:
        return measure.costs(free, _shape(pod, asked, 0), np.arange(len(rows)))
    costs = Costs(np.full(len(rows), NEVER), np.zeros(len(rows), np.int64))
    for model, total_mb in enumerate(kinds.total_mb):  # the same memory, other parts of a card
        at = np.flatnonzero(free.model == model)
        if len(at):
            part = measure.costs(free, _shape(pod, asked, total_mb), at)
            costs.cost[at], costs.card[at] = part
    return costs


def card_losses(
    pod: PodAsk, twin_columns: TwinColumns, row: int, aliases: Aliases
) -> Mapping[str, float]:
    """In milli of a card, by the uuid of each card of a node that its loss is known of."""
    cards, at = twin_columns.cards, np.array([row])
    alone = cards.on(at, [pod.uid])
    layout, asked = layout_of(alone), shape_of(pod)
    if asked is None or not len(layout.nodes):
        return {}
    kinds = kinds_of(twin_columns, aliases)
    free = free_of(twin_columns, kinds, at, pod.uid)._replace(rest=rests_of(alone))
    shape = _shape(pod, asked, kinds.total_mb[int(free.model[0])])
    by_card = measure_of(twin_columns, kinds).by_card(free, shape, 0)[layout.slot]
    return {
        alone.uuids[card]: float(cost)
        for card, cost in zip(layout.place.tolist(), by_card.tolist(), strict=True)
    }


def _shape(pod: PodAsk, asked: GpuShape, total_mb: int) -> Shape:
    models = (pod.gpu.model,) if pod.gpu.model else ()
    share = share_of(asked.share, asked.mb, total_mb)
    return Shape(asked.milli, 0, asked.cards, share, models)


class _Kept(NamedTuple):
    demand: GpuDemand
    kinds: PoolKinds
    measure: Measure
    priced: Counts
    worth: Floats


def measure_of(twin_columns: TwinColumns, kinds: PoolKinds) -> Measure:
    """Computed when demand is renewed, and when nodes or cards are added or removed."""
    demand, memo = twin_columns.gpu_demand, twin_columns.cards.fixed_memo
    kept = memo.get(measure_of)
    if isinstance(kept, _Kept) and kept.demand is demand and kept.kinds is kinds:
        return kept.measure
    if isinstance(kept, _Kept) and kept.kinds is kinds and kept.priced == demand.priced:
        worth = kept.worth
    else:
        worth = worth_of(demand.priced, kinds)
    measure = Measure(terms_of(demand, kinds, worth))
    memo[measure_of] = _Kept(demand, kinds, measure, demand.priced, worth)
    return measure
