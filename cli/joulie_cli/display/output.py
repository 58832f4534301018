"""Prints the result of a command in the format of `--output`."""

import argparse
import errno
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from joulie_bus.errors import NotWritten
from joulie_bus.runtime.system_errors import reason_of


def show(args: argparse.Namespace, data: object, text: str) -> None:
    """`data` as JSON or YAML; `text` for people, in colours on a terminal."""
    if (found := rendered(args.output, data, text)) is text:
        print_text(text)
    else:
        print(found, flush=True)


def print_text(text: str) -> None:
    """With colours and drawn tables on a terminal."""
    if has_colours(sys.stdout.isatty(), os.environ):
        from joulie_cli.display.colours import print_coloured

        print_coloured(text)
        return
    print(text, flush=True)


def has_colours(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """https://no-color.org: any value but an empty one turns colours off."""
    if not is_terminal or environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return find_spec("rich") is not None


def rendered(form: str, data: object, text: str) -> str:
    match form:
        case "json" | "jsonl":
            return msgspec.json.encode(data).decode()
        case "yaml":
            plain = msgspec.to_builtins(data)  # times as text, as in JSON
            return msgspec.yaml.encode(plain).decode().rstrip("\n")
        case _:
            return text


def require_writable(option: str, file: Path | None) -> None:
    """Before the work whose result the file is to hold. Raises NotWritten."""
    if file is None:
        return
    if file.is_dir():
        raise NotWritten(f"{option}={file}", os.strerror(errno.EISDIR))
    if not file.parent.is_dir():
        raise NotWritten(f"{option}={file}", f"there is no directory {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise NotWritten(f"{option}={file}", os.strerror(errno.EACCES))


def write(option: str, file: Path, text: str) -> None:
    """Raises NotWritten."""
    try:
        file.write_text(text)
    except OSError as error:
        raise NotWritten(f"{option}={file}", reason_of(error)) from error
