"""Prints the result of a command in the format of `--output`."""

import argparse
import json

import msgspec


def show(args: argparse.Namespace, data: object, text: str) -> None:
    """`data` as JSON or YAML; `text` for people."""
    print(rendered(args.output, data, text), flush=True)


def rendered(form: str, data: object, text: str) -> str:
    match form:
        case "json":
            return json.dumps(data)
        case "yaml":
            return msgspec.yaml.encode(data).decode().rstrip("\n")
        case _:
            return text
