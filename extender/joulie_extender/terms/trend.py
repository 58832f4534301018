"""The trend: a node whose power falls is better."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import number, setting


@dataclass(frozen=True, kw_only=True)
class TrendSettings:
    trend_scale: float = setting(
        number(0.01),
        "SCORE_TREND_SCALE",
        "6",
        "W/min of a node's trend per point, while the cluster is steady",
    )
    trend_burst_scale: float = setting(
        number(0.01),
        "SCORE_TREND_BURST_SCALE",
        "2",
        "W/min of a node's trend per point, during a burst",
    )
    trend_limit: float = setting(
        number(0, 100), "SCORE_TREND_LIMIT", "25", "Most points of a node's trend, either way"
    )
    burst_w_per_min: float = setting(
        number(0),
        "SCORE_BURST_THRESHOLD",
        "500",
        "Trend of the cluster's power, in W/min, above which a burst is assumed",
    )
