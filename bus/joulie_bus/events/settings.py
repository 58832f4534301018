"""The settings that an extender replica scores with."""

from typing import ClassVar

from joulie_bus.events.base import LoggedEvent, Values
from joulie_bus.events.bounds import Word


class SettingsDeclared(LoggedEvent, frozen=True, kw_only=True):
    """Every number that a replica scores with, published before its first answer that uses them."""

    TYPE: ClassVar[str] = "decision.settings-declared"
    settings: Word
    code: Word  # version of the program
    values: Values

    @property
    def key(self) -> str:
        return self.settings
