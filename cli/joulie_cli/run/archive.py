"""write the log to an archive outside broker and database, restore it, or fetch its copy."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=("write", "restore", "fetch"), default="write")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the archive (ARCHIVE_DIR)")
    parser.add_argument(
        "--every",
        nargs="?",
        const=0.0,
        type=shared.some_seconds,
        metavar="TIME",
        help="repeat until stopped (1h)",
    )
    parser.add_argument("--now", action="store_true", help="include the current hour")
    parser.add_argument(
        "--plain", action="store_true", help="do not write Parquet even if it is available"
    )
    parser.add_argument(
        "--trim", action="store_true", help="then delete archived data from streams and database"
    )
    parser.add_argument(
        "--keep",
        type=shared.some_seconds,
        metavar="TIME",
        help="minimum age of trimmed data (ARCHIVE_KEEP)",
    )


def program() -> Program:
    from joulie_cli.components import archive

    return Program(archive.SETTINGS, archive.run)
