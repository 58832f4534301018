"""Prints the result of a command in the format of `--output`."""

import argparse
import sys
from pathlib import Path

import msgspec


def show(args: argparse.Namespace, data: object, text: str) -> None:
    """`data` as JSON or YAML; `text` for people."""
    print(rendered(args.output, data, text), flush=True)


def rendered(form: str, data: object, text: str) -> str:
    match form:
        case "json" | "jsonl":
            return msgspec.json.encode(data).decode()
        case "yaml":
            plain = msgspec.to_builtins(data)  # times as text, as in JSON
            return msgspec.yaml.encode(plain).decode().rstrip("\n")
        case _:
            return text


def written(file: Path, svg: str) -> bool:
    """Writes a plot; False, with a message, if that failed."""
    try:
        file.write_text(svg)
    except OSError as error:
        print(f"joulie simulate: {file} was not written: {error}", file=sys.stderr)
        return False
    return True
