"""serve the API, the stream of decisions and the web page."""

import argparse

from joulie_cli.command_line.commands import Program


def options(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def program() -> Program:
    from joulie_cli.components import console

    return Program(console.SETTINGS, console.run)
