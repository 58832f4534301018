"""Label selectors, compiled so that equal ones are one key."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from joulie_simulator.kube_scheduler.objects import LabelSelector

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class Requires(NamedTuple):
    """One requirement of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def admits(self, value: str | None) -> bool:
        """`value` is that of the label; None if it is not set."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        here, there = integer(value), integer(self.values[0]) if self.values else None
        if here is None or there is None:
            return False
        return here > there if self.operator == "Gt" else here < there


def integer(text: str) -> int | None:
    """As Go parses 64 bits; None for other text."""
    if _INTEGER.fullmatch(text) is None:
        return None
    found = int(text)
    return found if -(2**63) <= found < 2**63 else None


class Selector(NamedTuple):
    """All of these, or nothing at all."""

    requires: tuple[Requires, ...] = ()
    is_nothing: bool = False

    @property
    def is_everything(self) -> bool:
        return not self.requires and not self.is_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.is_nothing:
            return False
        return all(each.admits(labels.get(each.key)) for each in self.requires)

    def and_equal(self, labels: Iterable[tuple[str, str]]) -> "Selector":
        if self.is_nothing:
            return self
        return Selector((*self.requires, *(Requires(key, "In", (value,)) for key, value in labels)))


EVERYTHING, NOTHING = Selector(), Selector(is_nothing=True)


def selector_of(given: LabelSelector | None) -> Selector:
    """A missing selector selects nothing, and an empty one everything."""
    if given is None:
        return NOTHING
    equal = EVERYTHING.and_equal(sorted((given.match_labels or {}).items()))
    others = [
        Requires(each.key, each.operator, tuple(sorted(each.values or ())))
        for each in given.match_expressions or ()
    ]
    return Selector((*equal.requires, *others))
