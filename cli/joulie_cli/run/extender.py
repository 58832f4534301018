"""answer kube-scheduler's filter, prioritize and bind calls."""

import argparse

from joulie_cli.command_line.commands import Program


def options(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def program() -> Program:
    from joulie_cli.components import extender

    return Program(extender.SETTINGS, extender.run)
