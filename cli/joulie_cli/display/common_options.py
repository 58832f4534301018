"""Options of the commands that read the log. Imports nothing heavy: every command loads them."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

# A test compares them with the types of the events.
ENTRY_KINDS = (
    *("settings-declared", "filter", "prioritize", "preempt", "fallback", "dropped"),
    *("bind", "outcome"),
)


def explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="+", metavar="POD", help="namespace/name, uid; node NAME; plan ID|POSITION"
    )
    parser.add_argument("--node", metavar="NAME", help="also show the terms of this candidate")
    _archive(parser)


def decisions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--follow", action="store_true", help="print new entries as they are written"
    )
    parser.add_argument("--pod", metavar="POD", help="namespace/name, a name or a uid")
    parser.add_argument("--node", metavar="NAME", help="name of a candidate")
    parser.add_argument("--namespace", metavar="NAME")
    parser.add_argument("--kind", action="append", choices=ENTRY_KINDS, metavar="KIND")
    parser.add_argument("--since", metavar="TIME", help="a time, or -10m")
    parser.add_argument("--limit", type=_count, default=20, metavar="N", help="the newest N (20)")
    _archive(parser)


def plans(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, default=20, metavar="N", help="the newest N (20)")
    parser.add_argument("--all", action="store_true", help="include plans without changes")
    _archive(parser)


def twin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--at", metavar="WHEN", help="a position, a time, or -10m (now)")
    parser.add_argument(
        "--history", action="store_true", help="list the changes that plans made, with reasons"
    )
    _archive(parser)


def verify(parser: argparse.ArgumentParser) -> None:
    _span(parser, "entry")
    parser.add_argument(
        "--heads",
        default="stream",
        metavar="FILE",
        help="anchored heads from a file, or none (stream)",
    )
    _jobs(parser)
    _archive(parser)


def prove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("position", type=_count, metavar="ENTRY", help="number of the entry")
    _archive(parser)


def diff(parser: argparse.ArgumentParser) -> None:
    for name in ("one", "other"):
        parser.add_argument(
            name, metavar="HEAD", help="a file with a head, or the number of its entry"
        )
    _archive(parser)


def replay(parser: argparse.ArgumentParser) -> None:
    _span(parser, "position")
    parser.add_argument("--sample", type=_count, default=0, metavar="N", help="only N decisions")
    _jobs(parser)
    _archive(parser)


def whatif(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--policy", metavar="NAME", help="change the operator's policy")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the differences (SVG)")
    _span(parser, "position")
    _archive(parser)


def dead(parser: argparse.ArgumentParser) -> None:
    _archive(parser)


def rebuild(parser: argparse.ArgumentParser) -> None:
    _archive(parser)


def ledger(parser: argparse.ArgumentParser) -> None:
    _archive(parser)


def archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("write", "restore"), default="write")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the archive (ARCHIVE_DIR)")
    parser.add_argument(
        "--every",
        nargs="?",
        const=0.0,
        type=_often,
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
        "--keep", type=_often, metavar="TIME", help="minimum age of trimmed data (ARCHIVE_KEEP)"
    )


TIMES = ("--at", "--since", "--compromised-since", "--from", "--to")


def joined(argv: Sequence[str]) -> list[str]:
    """Rewrite `--at -10m` as `--at=-10m`: argparse would parse the time as an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in TIMES and word[:1] == "-" and word[1:2].isdigit():
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=_count, default=0, metavar="N", help="number of processes")


def _archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="DIR",
        help="read facts from this archive first (ARCHIVE_DIR)",
    )


def _span(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--from", dest="first", type=_count, default=1, metavar="N", help=f"{what} 1"
    )
    parser.add_argument("--to", dest="last", type=_count, metavar="N", help=f"{what}, the newest")


def _often(text: str) -> float:
    from joulie_bus.runtime.settings import some_time

    try:
        return some_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {some_time.__doc__}") from error


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "explain": explain,
    "decisions": decisions,
    "plans": plans,
    "twin": twin,
    "verify": verify,
    "prove": prove,
    "diff": diff,
    "replay": replay,
    "whatif": whatif,
    "archive": archive,
}
