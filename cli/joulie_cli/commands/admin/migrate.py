"""migrate the database to this version's schema and create missing streams."""

import argparse

from joulie_cli.command_line.commands import Program

PHASES = ("pre", "post")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--phase", choices=PHASES, help="before or after the new code is rolled out"
    )
    parser.add_argument(
        "--new-broker",
        action="store_true",
        help="the streams are lost: continue the log on an empty broker",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="the streams were restored from a snapshot: continue the log with them",
    )
    parser.add_argument(
        "--from", dest="source", metavar="URL", help="copy this database, of stopped components"
    )
    parser.add_argument("--to", metavar="URL", help="into this one, which is empty")


def program() -> Program:
    from joulie_cli.admin import migrate

    return migrate
