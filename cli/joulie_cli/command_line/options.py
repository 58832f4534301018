"""Options and types of arguments that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def output(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json", "yaml")
) -> None:
    """The first format is the default."""
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help=f"the format ({formats[0]})"
    )
    shorthand(parser, "json")


def shorthand(parser: argparse.ArgumentParser, form: str) -> None:
    parser.add_argument(
        f"--{form}", dest="output", action="store_const", const=form, help=f"--output {form}"
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
    parser.add_argument("--ca-file", metavar="FILE", help="server: who signed its certificate")


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


def newest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="the newest N (20)")


def jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=count, default=0, metavar="N", help="number of processes")


def span(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--from", dest="first", type=count, default=1, metavar="N", help=f"{what} 1"
    )
    parser.add_argument("--to", dest="last", type=count, metavar="N", help=f"{what}, the newest")


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


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


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
