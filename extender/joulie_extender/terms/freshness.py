"""What is known of a candidate, and how old it may be."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import number, setting, some_time


@dataclass(frozen=True, kw_only=True)
class FreshnessSettings:
    staleness_s: float = setting(
        some_time,
        "TWIN_STALENESS_THRESHOLD",
        "5m",
        "Age after which a twin or a reading is not used",
    )
    neutral: float = setting(
        number(0, 100),
        "SCORE_NEUTRAL",
        "50",
        "Score of a node without fresh data; never above the best known candidate",
    )
