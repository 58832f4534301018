"""Cooling models: how hard it is to cool a node, from 0 to 100.

A model takes columns, one row per node, and must use only arithmetic that gives the same bits on
every machine, because replays run it again. Users add models as entry points of GROUP; a setting
selects the model, and every decision records its settings.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]

GROUP = "joulie.cooling_models"

REFERENCE_W = 4000.0  # 2 x EPYC 9654 + 8 x H100 NVL
REFERENCE_SHARE = 80.0  # stress of the reference node in a cool hall; the rest is for heat
BASELINE_C = 20.0
STRESS_PER_DEGREE = 0.5
RESERVE_LOST_PER_DEGREE = 0.02
LEAST_RESERVE = 0.5  # the share of cooling that remains at any temperature


class Heat(NamedTuple):
    power_w: Column
    tdp_w: Column
    ambient_c: Column


CoolingModel = Callable[[Heat], Column]


def linear(heat: Heat) -> Column:
    """Power relative to a reference node, plus a term for warm halls."""
    warmth = np.maximum(0.0, heat.ambient_c - BASELINE_C) * STRESS_PER_DEGREE
    return np.clip(heat.power_w / REFERENCE_W * REFERENCE_SHARE + warmth, 0.0, 100.0)


def tdp_ratio(heat: Heat) -> Column:
    """Power relative to the TDP, weighted by the cooling reserve of the hall."""
    reserve = 1 - (heat.ambient_c - BASELINE_C) * RESERVE_LOST_PER_DEGREE
    share = heat.power_w / np.where(heat.tdp_w > 0, heat.tdp_w, 1.0)
    return np.clip(share / np.maximum(LEAST_RESERVE, reserve) * 100, 0.0, 100.0)


def stress(model: CoolingModel, heat: Heat) -> Column:
    """The result of a model, clipped to 0 to 100; NaN counts as 100."""
    return np.clip(np.nan_to_num(model(heat), nan=100.0), 0.0, 100.0)


@lru_cache
def model_names() -> tuple[str, ...]:
    """The installed models. Looked up once: each set of weights checks its own against them."""
    return tuple(sorted(found.name for found in entry_points(group=GROUP)))


@lru_cache
def model_named(name: str) -> CoolingModel:
    """Loads an installed model. Raises KeyError for an unknown name."""
    model: CoolingModel = entry_points(group=GROUP)[name].load()
    return model
