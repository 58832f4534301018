"""The setting for cards that pods hold without using them."""

from dataclasses import dataclass

from joulie_bus.runtime.settings import setting, some_time


@dataclass(frozen=True, kw_only=True)
class HolderSettings:
    idle_after_s: float = setting(
        some_time,
        "IDLE_HOLDER_AFTER",
        "15m",
        "A pod that holds a GPU card without using it for so long is reported",
    )
