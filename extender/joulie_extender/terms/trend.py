"""The trend: a node whose power falls is better."""

import math
from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import number, setting
from joulie_extender.terms.term import Nodes, Term, TermInput
from joulie_projections.twin.arrays import Floats

SCALE = 6.0  # W/min per point while the cluster is steady
BURST_SCALE = 2.0  # during a burst
BURST_W_PER_MIN = 500.0  # of the cluster, above which a burst is assumed


@dataclass(frozen=True, kw_only=True)
class TrendSettings:
    trend_scale: float = setting(
        number(0.01),
        "SCORE_TREND_SCALE",
        f"{SCALE:g}",
        "W/min of a node's trend per point while the cluster is steady; a third of it during a "
        "burst, which is a trend of the cluster above 83 times it",
        section="scores",
    )
    trend_burst_scale: float = BURST_SCALE
    trend_limit: float = 25.0  # most points of a node's trend, either way
    burst_w_per_min: float = BURST_W_PER_MIN

    def scaled(self) -> dict[str, float]:
        """All numbers in W/min at this scale: they change together with the speed of time."""
        return {
            "trend_scale": self.trend_scale,
            "trend_burst_scale": self.trend_scale * BURST_SCALE / SCALE,
            "burst_w_per_min": self.trend_scale * BURST_W_PER_MIN / SCALE,
        }


def _rising(nodes: Nodes) -> Floats:
    """From fresh readings only: an old trend carries no information."""
    return np.where(nodes.read, nodes.twin_columns.floats("trend_w_per_min"), 0.0)


def cluster_trend(nodes: Nodes) -> float:
    """Rounded once, so that the order of nodes changes no term."""
    rising = nodes.once(_rising)
    return math.fsum(rising[rising != 0].tolist())


def _trend(nodes: Nodes, settings: TrendSettings) -> Floats:
    is_burst = abs(nodes.once(cluster_trend)) > settings.burst_w_per_min
    scale = settings.trend_burst_scale if is_burst else settings.trend_scale
    limit = settings.trend_limit
    falling = -np.clip(nodes.once(_rising) / scale, -limit, limit)
    return np.where(nodes.read, falling, 0.0)


class Trend(Term[TrendSettings]):
    name = "trend"
    head = " trend"
    meaning = "Points for a node whose power falls, against one whose power rises"
    settings = TrendSettings
    columns = (("trend", _trend),)

    def value(self, asked: TermInput, _: TrendSettings) -> Floats:
        return asked.column("trend")
