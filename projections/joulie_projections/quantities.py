"""Kubernetes' quantities: `500m`, `1.5`, `1Gi`, `129e6`. Exact; nothing unreadable becomes 0.

The grammar is that of `resource.ParseQuantity`, and tests/cluster compares the two, but that
Kubernetes reads a text without any digit, such as `m`, as 0. What is beyond int64 counts as its
largest: Kubernetes caps binary quantities there, and keeps decimal ones.
"""

import re
from fractions import Fraction

from joulie_bus.errors import BadQuantity

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?0*\d{1,3}))?",
    re.ASCII,  # a digit of another script is no digit to Kubernetes
)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LARGEST = Fraction(2**63 - 1)  # what a Kubernetes quantity can hold
_LONGEST = 1000  # characters of a text that is reckoned

Quantity = str | int | float


def parse(quantity: Quantity, where: str = "a resource") -> Fraction:
    """Never negative: such a request is a mistake. One beyond int64 is int64's largest, as the API
    server has it; so is one of more digits than anything has, which is not reckoned.
    """
    text = quantity if isinstance(quantity, str) else str(quantity)
    match = _GRAMMAR.fullmatch(text)
    if match is None or (len(text) > _LONGEST and text.startswith("-")):
        raise BadQuantity(quantity, where)
    if len(text) > _LONGEST:
        return LARGEST
    value = _to_nano(Fraction(match["number"]) * _scale(match["suffix"], match["exponent"]))
    if value < 0:
        raise BadQuantity(quantity, where)
    return min(value, LARGEST)


def _scale(suffix: str | None, exponent: str | None) -> Fraction:
    if suffix in _POWERS_OF_TWO:
        return Fraction(2 ** _POWERS_OF_TWO[suffix])
    return Fraction(10) ** (_POWERS_OF_TEN[suffix] if suffix else int(exponent or 0))


def _to_nano(value: Fraction) -> Fraction:
    """Away from zero, as Kubernetes keeps no smaller part: a request for little is not for none."""
    billionths = value * 10**9
    if billionths.denominator == 1:
        return value
    whole = -(-abs(billionths.numerator) // billionths.denominator)
    return Fraction(whole if value > 0 else -whole, 10**9)


def rounded_up(value: Fraction) -> int:
    """As Kubernetes rounds: a request is never made smaller, and ends where int64 does."""
    return min(-(-value.numerator // value.denominator), int(LARGEST))
