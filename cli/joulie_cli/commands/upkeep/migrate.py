"""migrate the database to this version's schema and create missing streams."""

import argparse

from joulie_cli.command_line.commands import Program

PHASES = ("pre", "post")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--phase", choices=PHASES, help="before or after the new code is rolled out"
    )


def program() -> Program:
    from joulie_cli.upkeep import migrate

    return migrate
