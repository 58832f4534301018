"""The options of the commands that look back. Imports nothing: every `joulie` reads them."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

# A test holds them to be those of the events.
ENTRY_KINDS = (
    *("settings-declared", "filter", "prioritize", "preempt", "fallback", "dropped"),
    *("bind", "outcome"),
)


def explain(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "what", nargs="+", metavar="POD", help="namespace/name, uid; node NAME; plan ID|POSITION"
    )
    made.add_argument("--node", metavar="NAME", help="show the terms of this candidate too")
    _archive(made)


def decisions(made: argparse.ArgumentParser) -> None:
    made.add_argument("--follow", action="store_true", help="go on as it happens")
    made.add_argument("--pod", metavar="POD", help="namespace/name, a name or a uid")
    made.add_argument("--node", metavar="NAME", help="a candidate")
    made.add_argument("--namespace", metavar="NAME")
    made.add_argument("--kind", action="append", choices=ENTRY_KINDS, metavar="KIND")
    made.add_argument("--since", metavar="TIME", help="a time, or -10m")
    made.add_argument("--limit", type=_count, default=20, metavar="N", help="the newest N (20)")
    _archive(made)


def plans(made: argparse.ArgumentParser) -> None:
    made.add_argument("--limit", type=_count, default=20, metavar="N", help="the newest N (20)")
    made.add_argument("--all", action="store_true", help="also those that changed nothing")
    _archive(made)


def twin(made: argparse.ArgumentParser) -> None:
    made.add_argument("node", metavar="NODE")
    made.add_argument("--at", metavar="WHEN", help="a position, a time, or -10m; else now")
    made.add_argument("--history", action="store_true", help="what plans did to it, and why")
    _archive(made)


def verify(made: argparse.ArgumentParser) -> None:
    _span(made, "entry")
    made.add_argument(
        "--heads", default="stream", metavar="FILE", help="heads kept elsewhere, or none (stream)"
    )
    _jobs(made)
    _archive(made)


def prove(made: argparse.ArgumentParser) -> None:
    made.add_argument("position", type=_count, metavar="ENTRY", help="number of the entry")
    _archive(made)


def diff(made: argparse.ArgumentParser) -> None:
    for name in ("one", "other"):
        made.add_argument(name, metavar="HEAD", help="a file with a head, or its entry's number")
    _archive(made)


def replay(made: argparse.ArgumentParser) -> None:
    _span(made, "position")
    made.add_argument("--sample", type=_count, default=0, metavar="N", help="N decisions only")
    _jobs(made)
    _archive(made)


def whatif(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another setting"
    )
    made.add_argument("--policy", metavar="NAME", help="another policy of the operator")
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw the shifts (SVG)")
    _span(made, "position")
    _archive(made)


def dead(made: argparse.ArgumentParser) -> None:
    _archive(made)


def rebuild(made: argparse.ArgumentParser) -> None:
    _archive(made)


def archive(made: argparse.ArgumentParser) -> None:
    made.add_argument("action", nargs="?", choices=("write", "restore"), default="write")
    made.add_argument("--to", type=Path, metavar="DIR", help="the archive (ARCHIVE_DIR)")
    made.add_argument(
        "--every",
        nargs="?",
        const=0.0,
        type=_often,
        metavar="TIME",
        help="again and again until told to stop (1h)",
    )
    made.add_argument("--now", action="store_true", help="also the hour that is not over yet")
    made.add_argument("--plain", action="store_true", help="no Parquet, even where it could be")
    made.add_argument(
        "--trim", action="store_true", help="then delete what it holds from streams and database"
    )
    made.add_argument(
        "--keep", type=_often, metavar="TIME", help="but not what is younger (ARCHIVE_KEEP)"
    )


TIMES = ("--at", "--since", "--compromised-since")


def joined(argv: Sequence[str]) -> list[str]:
    """`--at -10m` as `--at=-10m`: argparse would take the moment for an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in TIMES and word[:1] == "-" and word[1:2].isdigit():
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _jobs(made: argparse.ArgumentParser) -> None:
    made.add_argument("--jobs", type=_count, default=0, metavar="N", help="processes")


def _archive(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--archive", type=Path, metavar="DIR", help="read facts there first (ARCHIVE_DIR)"
    )


def _span(made: argparse.ArgumentParser, what: str) -> None:
    made.add_argument("--from", dest="first", type=_count, default=1, metavar="N", help=f"{what} 1")
    made.add_argument("--to", dest="last", type=_count, metavar="N", help=f"{what}, the newest")


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
