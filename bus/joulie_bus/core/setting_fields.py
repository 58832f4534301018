"""The declaration of a setting: a field of a class, with its parser, its default and its text.

Parsers that read nothing but the text are here, so that code that computes can declare settings.
`runtime.settings` reads the values, and has the parsers that look at files.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Parser = Callable[[str], T]
# The values that settings had before they existed, by the name that a declaration in the log has.
Before = tuple[tuple[str, float | str | bool], ...]


class NoSettings:
    """Of code that has none."""


def setting(  # noqa: PLR0913 (the columns of a declaration)
    parse: Parser[T],
    name: str,
    default: str,
    doc: str,
    *,
    secret: bool = False,
    table: bool = False,
    section: str = "",
) -> T:
    """A field of a settings class. The default is text too, so that it passes the same parser.

    `table`: a file may give it as a table of numbers; the parser gets the `pairs` of it.
    `section`: of the files of presets, which may give it by its name in small letters. A setting
    whose name is in small letters is given by them only.
    """
    field: Any = dataclasses.field(
        default_factory=lambda: parse(default),
        metadata={
            "parse": parse,
            "name": name,
            "default": default,
            "doc": doc,
            "secret": secret,
            "table": table,
            "section": section,
            "only_preset": bool(section) and name.islower(),
        },
    )
    return field  # type: ignore[no-any-return]


def preset_number(
    parse: Parser[T], name: str, default: str, doc: str, section: str, *, table: bool = False
) -> T:
    """A number or a choice of scores or plans, which only the file of a preset gives."""
    return setting(parse, name, default, doc, table=table, section=section)


def pairs(table: Mapping[str, object]) -> str:
    """The text of a table: name=number, separated by commas; `a.b` for b of a table within it."""
    return ",".join(f"{name}={number}" for name, number in _numbers(table, ""))


def _numbers(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):  # a bool is an int
            yield prefix + name, value if isinstance(value, float) else int(value)
        else:
            raise ValueError(f"{prefix}{name} is not a number")


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def duration(text: str) -> float:
    """a duration such as 250ms, 30s, 5m or 1h30m"""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("not a duration")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def some_time(text: str) -> float:
    """a duration longer than nothing, such as 250ms, 30s, 5m or 1h30m"""
    seconds = duration(text)
    if seconds <= 0:
        raise ValueError("too short")
    return seconds


def some_time_or_never(text: str) -> float | None:
    """a duration longer than nothing, such as 250ms, 30s, 5m or 1h30m, or never"""
    return None if text == "never" else some_time(text)


def boolean(text: str) -> bool:
    """true or false"""
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def text(value: str) -> str:
    """any text"""
    return value


def number(low: float = -math.inf, high: float = math.inf) -> Parser[float]:
    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError("out of range")
        return value

    parse.__doc__ = f"a number{_range(low, high)}"
    return parse


def integer(low: float = -math.inf, high: float = math.inf) -> Parser[int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError("out of range")
        return value

    parse.__doc__ = f"a whole number{_range(low, high)}"
    return parse


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f", at least {low:.12g}"
    return f" from {low:.12g} to {high:.12g}"


def choice(*allowed: str) -> Parser[str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError("unknown")
        return text

    parse.__doc__ = f"one of {', '.join(allowed)}"
    return parse


def token(value: str) -> str:
    """letters, digits and dashes"""
    if not re.fullmatch(r"[A-Za-z0-9-]+", value):
        raise ValueError("not a plain name")
    return value


def inbox(value: str) -> str:
    """the first part of a subject, such as _INBOX_extender"""
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", value):
        raise ValueError("not a subject without wildcards")
    return value
