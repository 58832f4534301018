"""Free GPUs that no pod like those that were seen could use, by model."""

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

import numpy as np

from joulie_extender.gpu.demand import usable_now
from joulie_extender.gpu.fragmentation import MOST_CORES, TENTH
from joulie_extender.gpu.free_cards import free_of, kinds_of, layout_of
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.shapes import CARD
from joulie_projections.twin.columns import TwinColumns


class FreeGpus(NamedTuple):
    free: float
    unusable: float  # of these


def free_gpus(twin_columns: TwinColumns, aliases: Aliases) -> Mapping[str, FreeGpus]:
    """Parts of cards are added up. A part is unusable if no pod asks for so little of a card with
    so few cores, a whole card if no pod of one card or of several fits on the node. Cards of
    which pods request units do not count: which part of them is free is not known. A model without
    another card is left out: what is free of it is not 0.
    """
    kinds = kinds_of(twin_columns, aliases)
    free, nodes = free_of(twin_columns, kinds), layout_of(twin_columns.cards).nodes
    if not len(nodes):
        return {}
    one, many = usable_now(twin_columns.gpu_demand, kinds)
    cores = np.clip(free.free_milli // CARD, 0, MOST_CORES)
    is_whole = free.rest == CARD
    has_use = one[free.model[:, None], cores[:, None], free.rest // TENTH] > 0
    has_use |= is_whole & (many[free.model, cores, is_whole.sum(1)] > 0)[:, None]
    counts = twin_columns.columns["present"][nodes]
    if free.unit is not None:
        counts = counts & (free.unit == CARD)
    rest = free.rest * counts[:, None]
    all_of, none_of = (
        (np.bincount(free.model, found.sum(1), len(kinds.models)) / CARD).tolist()
        for found in (rest, rest * ~has_use)
    )
    counted = np.bincount(free.model, counts, len(kinds.models)) > 0
    found = dict[str, FreeGpus]()
    for model, is_free, is_unusable in compress(
        zip(kinds.models, all_of, none_of, strict=True), counted
    ):
        before = found.get(model, FreeGpus(0.0, 0.0))  # one name may have several sizes
        found[model] = FreeGpus(before.free + is_free, before.unusable + is_unusable)
    return found
