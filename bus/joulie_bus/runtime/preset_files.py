"""Reads the files of presets: headroom.toml and savings.toml of this package, or one of a user.

A file has a table for scores and one for plans. Its `base` is another preset, whose values it
replaces: the name of a shipped one, or a path, which begins at the folder of the file.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from joulie_bus.core.setting_fields import pairs
from joulie_bus.core.similar_names import similar_names
from joulie_bus.runtime.presets import ENDING, PRESET, SHIPPED

Section = Literal["scores", "plans"]
SECTIONS: tuple[Section, ...] = ("scores", "plans")
BASE = "base"
DEEPEST = 8  # files that name each other as base; more are a circle
_HERE = Path(__file__).parent
_QUOTED = re.compile(r"[+-]?\d[\d_]*(\.\d+)?([eE][+-]?\d+)?|true|false")
_NO_FILES = "name headroom, savings, or a TOML file that can be read"


class PresetMistake(ValueError):
    """What is wrong with a file, and where."""


class Given(NamedTuple):
    """One value of a preset, as text for the parser of its setting."""

    text: str
    where: str  # file and line, or the name of a shipped one
    is_table: bool
    is_shipped: bool


Preset = Mapping[str, Given]  # by section.key


def read(preset: str) -> Preset:
    """Raises PresetMistake."""
    return _read(_path_of(preset, Path()), f"{PRESET}={preset}", DEEPEST)


def _path_of(preset: str, folder: Path) -> Path:
    return _HERE / f"{preset}{ENDING}" if preset in SHIPPED else folder / preset


def _read(path: Path, named_by: str, deepest: int) -> dict[str, Given]:
    text, whole = _toml_of(path, named_by)
    for name in whole:
        if name not in (BASE, *SECTIONS):
            hint = similar_names(name, (BASE, *SECTIONS))
            raise PresetMistake(f"{_where(path, text, '', name)}: there is no {name}; try {hint}")
    found: dict[str, Given] = {}
    if BASE in whole:
        found |= _base(path, text, whole[BASE], deepest)
    for section in SECTIONS:
        found |= dict(_values(path, text, section, whole.get(section, {})))
    return found


def _toml_of(path: Path, named_by: str) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text()
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PresetMistake(f"{path}: this is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise PresetMistake(f"{named_by}: {path} cannot be read: {why}; {_NO_FILES}") from error


def _base(path: Path, text: str, base: object, deepest: int) -> dict[str, Given]:
    where = _where(path, text, "", BASE)
    if not isinstance(base, str):
        raise PresetMistake(f"{where}: {BASE} is not text; {_NO_FILES}")
    if not deepest:
        raise PresetMistake(f"{where}: more than {DEEPEST} files name each other as {BASE}")
    return _read(_path_of(base, path.parent), f"{where}: {BASE} = {base!r}", deepest - 1)


def _values(path: Path, text: str, section: str, table: object) -> Iterator[tuple[str, Given]]:
    if not isinstance(table, dict):
        where = _where(path, text, "", section)
        raise PresetMistake(f"{where}: {section} is not a table; write [{section}] above its keys")
    for key, value in table.items():
        where = _where(path, text, section, key)
        try:
            given = Given(_text_of(value), where, isinstance(value, dict), path.parent == _HERE)
            yield f"{section}.{key}", given
        except ValueError as error:
            raise PresetMistake(f"{where}: {key}: {error}") from error


def _text_of(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case dict():
            return pairs(value)
        case str() if _QUOTED.fullmatch(value):
            raise ValueError(f"{value!r} is text; write it without quotes")
        case str():
            return value
        case _:
            raise ValueError("neither a number, text, true, false nor a table")


def _where(path: Path, text: str, section: str, key: str) -> str:
    """The file, and the line of a key where it has one of its own; a shipped file by its name."""
    if path.parent == _HERE:
        return f"{PRESET}={path.stem}"
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            table = heading[1]
            if table == f"{section}.{key}" or (not section and table.partition(".")[0] == key):
                return f"{path}, line {number}"
        elif table == section and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return f"{path}, line {number}"
    return str(path)
