"""answer for pods that another scheduler places; changes nothing in the cluster."""

import argparse

from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def program() -> Program:
    from joulie_cli.components import shadow

    return Program(shadow.SETTINGS, shadow.run)
