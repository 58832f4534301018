"""The headroom: the share of its cap that a node keeps free beside the pod."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import number, setting


@dataclass(frozen=True, kw_only=True)
class HeadroomSettings:
    headroom: float = setting(
        number(0, 10), "SCORE_HEADROOM_WEIGHT", "0.7", "Weight of the headroom"
    )
