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
    # Values of settings that versions up to 0.2.0 do not have: their console ends at a value in
    # `values` that it does not know, and ignores a field that it does not know.
    added: Values = {}

    @property
    def all_values(self) -> Values:
        return {**self.values, **self.added}

    @property
    def key(self) -> str:
        return self.settings
