"""Options and types of arguments that several commands share."""

import argparse
from collections.abc import Sequence
from datetime import date, timedelta
from math import inf
from pathlib import Path


def output(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json", "yaml")
) -> None:
    """The first format is the default."""
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help=f"the format ({formats[0]})"
    )


def archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="DIR",
        help="read facts from this archive first (ARCHIVE_DIR)",
    )


def source(parser: argparse.ArgumentParser) -> None:
    """Where a question is answered: the local data, unless a console is named."""
    archive(parser)
    server(parser)


def server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="URL", help="ask this console, not the local data")
    parser.add_argument("--token-file", metavar="FILE", help="server: the token of the console")
    parser.add_argument(
        "--ca-file", metavar="FILE", help="server: the authority of its certificate"
    )


def cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the cluster")


def limits_of_node(parser: argparse.ArgumentParser) -> None:
    """For commands that read or set the limits of the node on which they run."""
    parser.add_argument(
        "--host-root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="where the host's sys, proc, dev and var are (/)",
    )
    parser.add_argument(
        "--limits",
        type=Path,
        default=Path("/var/lib/joulie/limits.json"),
        metavar="FILE",
        help="keeps what the limits were before (/var/lib/joulie/limits.json)",
    )


def period(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")


def newest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="the newest N (20)")


def jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=count, default=0, metavar="N", help="number of processes")


def day(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--day", type=some_day, metavar="DAY[+N]", help=what)


def some_day(text: str) -> str:
    """2026-11-21, or so many days after it: a Job has the number of its pod."""
    begin, _, after = text.partition("+")
    try:
        return (date.fromisoformat(begin) + timedelta(days=int(after or 0))).isoformat()
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not YYYY-MM-DD or YYYY-MM-DD+N") from error


def span(parser: argparse.ArgumentParser, what: str) -> None:
    """A range of positions or entries, with the options `--from-WHAT` and `--to-WHAT`."""
    parser.add_argument(
        f"--from-{what}", dest="first", type=count, default=1, metavar="N", help="the first (1)"
    )
    parser.add_argument(
        f"--to-{what}", dest="last", type=count, metavar="N", help="the last (the newest)"
    )


def simulated_cluster(parser: argparse.ArgumentParser) -> None:
    """SimulatorOptions checks the values: `joulie demo` passes them on unchanged."""
    parser.add_argument("--nodes", metavar="N", help="number of nodes (200)")
    parser.add_argument("--seed", metavar="S", help="seed of the workload (1)")
    parser.add_argument("--speed", metavar="X", help="simulated seconds per second (60)")
    parser.add_argument("--pods-per-second", metavar="R", help="average over a simulated day")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="pod sizes: openb's pod list")
    parser.add_argument(
        "--bind-verb", metavar="PATH", help="the extender's verb for pods with GPUs"
    )
    parser.add_argument("--hours", metavar="H", help="simulated hours after which time stops")
    parser.add_argument(
        "--odd-nodes",
        metavar="N",
        help="nodes that arrive late, as many that fall silent and as many that leave",
    )


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def web_url(text: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not https://HOST or http://HOST")
    return text


def percent(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 100):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 100")
    return int(text)


def above_0(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return found


def seconds(text: str) -> float:
    from joulie_bus.runtime.settings import duration

    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {duration.__doc__}") from error


def some_seconds(text: str) -> float:
    from joulie_bus.runtime.settings import some_time

    try:
        return some_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {some_time.__doc__}") from error
