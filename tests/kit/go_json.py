"""Decodes JSON as Go's encoding/json: keys in any case, the last duplicate wins, strict types.

A shape converts a parsed value to Go's value: null is the zero value, unknown keys are skipped,
numbers keep their spelling.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

Shape = Callable[[Any, str], Any]
_INT64 = 2**63


class GoError(Exception):
    """The body cannot be decoded, so the call fails."""


class Pairs(NamedTuple):
    """An object with its duplicate keys."""

    items: list[tuple[str, Any]]


class Number(NamedTuple):
    text: str


def _no_constant(name: str) -> Any:
    raise GoError(f"invalid character '{name[0]}' looking for beginning of value")


_decoder = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_no_constant
)


def decode(body: bytes, shape: Shape) -> Any:
    """Decodes the first value of the body; the rest is ignored."""
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise GoError("EOF")
    try:
        value, _ = _decoder.raw_decode(text)
    except json.JSONDecodeError as error:
        raise GoError(_what_go_says(text, error)) from error
    return shape(value, "")


def _what_go_says(text: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(text) - 1 or "Unterminated" in error.msg:
        return "unexpected EOF"
    return f"invalid character '{text[error.pos]}' looking for beginning of value"


def string(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise GoError(f"json: cannot unmarshal into Go struct field {where} of type string")
    return value


def int64(value: Any, where: str) -> int:
    if value is None:
        return 0
    try:
        number = int(value.text) if isinstance(value, Number) else None
    except ValueError:
        number = None
    if number is None or not -_INT64 <= number < _INT64:
        raise GoError(f"json: cannot unmarshal into Go struct field {where} of type int64")
    return number


def anything(value: Any, _: str) -> Any:
    return value


def list_of(item: Shape) -> Shape:
    def shape(value: Any, where: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise GoError(f"json: cannot unmarshal into Go struct field {where} of type slice")
        return [item(each, where) for each in value]

    return shape


def map_of(item: Shape) -> Shape:
    def shape(value: Any, where: str) -> dict[str, Any]:
        return {key: item(each, f"{where}.{key}") for key, each in _pairs(value, where)}

    return shape


def struct(**fields: Shape) -> Shape:
    """A struct by value: null leaves every field at its zero value."""
    by_name = {name.lower(): (name, shape) for name, shape in fields.items()}

    def made(value: Any, where: str) -> dict[str, Any]:
        found = {name: shape(None, f"{where}.{name}") for name, shape in fields.items()}
        for key, each in _pairs(value, where):
            if key.lower() in by_name:
                name, shape = by_name[key.lower()]
                found[name] = shape(each, f"{where}.{name}")
        return found

    return made


def pointer(to: Shape) -> Shape:
    """A pointer: nil differs from the zero value."""
    return lambda value, where: None if value is None else to(value, where)


def _pairs(value: Any, where: str) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Pairs):
        raise GoError(f"json: cannot unmarshal into Go struct field {where} of type map")
    return value.items
