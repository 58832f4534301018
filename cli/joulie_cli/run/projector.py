"""order events, fold them into the twins, write the decision log."""

import argparse

from joulie_cli.command_line.commands import Program


def options(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def program() -> Program:
    from joulie_cli.components import projector

    return Program(projector.SETTINGS, projector.run)
