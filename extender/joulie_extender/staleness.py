"""How old data may be. Light: `joulie status` reads it, and loads no extender."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import setting, some_time


@dataclass(frozen=True, kw_only=True)
class FreshnessSettings:
    staleness_s: float = setting(
        some_time,
        "TWIN_STALENESS_THRESHOLD",
        "5m",
        "Age after which a twin or a reading is not used",
        section="scores",
    )
    neutral: float = 50.0  # the score without fresh data; never above the best known candidate
