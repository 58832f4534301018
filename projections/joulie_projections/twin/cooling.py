"""How hard it is to cool a node, from 0 to 100: models by name, ours and our users'. Pure.

A model takes columns, one row per node, and uses nothing but arithmetic that gives the same bits on
every machine, because a replay runs it again. Users add one as an entry point of GROUP; its name is
a setting, and every decision says which settings it was made with.
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
REFERENCE_SHARE = 80.0  # what the reference node scores in a cool room; the rest is for warm ones
BASELINE_C = 20.0
STRESS_PER_DEGREE = 0.5
RESERVE_LOST_PER_DEGREE = 0.02
LEAST_RESERVE = 0.5  # however hot it is, this share of the cooling is left


class Heat(NamedTuple):
    power_w: Column
    tdp_w: Column
    ambient_c: Column


CoolingModel = Callable[[Heat], Column]


def linear(heat: Heat) -> Column:
    """Watts against a reference node, plus what a warm room takes away."""
    warmth = np.maximum(0.0, heat.ambient_c - BASELINE_C) * STRESS_PER_DEGREE
    return np.clip(heat.power_w / REFERENCE_W * REFERENCE_SHARE + warmth, 0.0, 100.0)


def tdp_ratio(heat: Heat) -> Column:
    """Watts against what the node could draw; a warm room makes each of them weigh more."""
    reserve = 1 - (heat.ambient_c - BASELINE_C) * RESERVE_LOST_PER_DEGREE
    share = heat.power_w / np.where(heat.tdp_w > 0, heat.tdp_w, 1.0)
    return np.clip(share / np.maximum(LEAST_RESERVE, reserve) * 100, 0.0, 100.0)


def stress(model: CoolingModel, heat: Heat) -> Column:
    """Whatever a model answers, what counts lies between 0 and 100; no number counts as 100."""
    return np.clip(np.nan_to_num(model(heat), nan=100.0), 0.0, 100.0)


def model_names() -> list[str]:
    return sorted(found.name for found in entry_points(group=GROUP))


@lru_cache
def model_named(name: str) -> CoolingModel:
    """KeyError if nobody has installed it."""
    model: CoolingModel = entry_points(group=GROUP)[name].load()
    return model
