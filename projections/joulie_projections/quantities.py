"""Parses Kubernetes quantities (`500m`, `1.5`, `1Gi`, `129e6`) exactly; bad text is an error.

The grammar is that of `resource.ParseQuantity`, and tests/cluster compares the two, with one
difference: Kubernetes parses text without a digit, such as `m`, as 0. Values above int64 are capped
at its maximum; Kubernetes caps binary quantities and keeps decimal ones.
"""

import re
from fractions import Fraction

from joulie_bus.errors import BadQuantity

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?0*\d{1,3}))?",
    re.ASCII,  # Kubernetes accepts ASCII digits only
)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LARGEST = Fraction(2**63 - 1)  # the largest Kubernetes quantity
_MAX_CHARS = 1000  # longer text is not evaluated

Quantity = str | int | float


def parse(quantity: Quantity, where: str = "a resource") -> Fraction:
    """Parses one quantity. Raises BadQuantity for bad grammar and for negative values.

    Values above int64 are capped at its maximum, as the API server does; so is any text of more
    than 1000 characters, which is not evaluated.
    """
    text = quantity if isinstance(quantity, str) else str(quantity)
    match = _GRAMMAR.fullmatch(text)
    if match is None or (len(text) > _MAX_CHARS and text.startswith("-")):
        raise BadQuantity(quantity, where)
    if len(text) > _MAX_CHARS:
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
    """Rounds away from zero to nanos, the smallest unit of Kubernetes."""
    billionths = value * 10**9
    if billionths.denominator == 1:
        return value
    whole = -(-abs(billionths.numerator) // billionths.denominator)
    return Fraction(whole if value > 0 else -whole, 10**9)


def rounded_up(value: Fraction) -> int:
    """Rounds up to an integer as Kubernetes does, capped at int64."""
    return min(-(-value.numerator // value.denominator), int(LARGEST))
