"""`joulie`: reads the command line, runs one thing, ends with an exit code.

0: done, all is well. 1: what was looked at is not well. 2: it could not be done; stderr says why.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

import joulie_migrations
from joulie_bus import metrics
from joulie_bus.errors import JoulieError
from joulie_bus.settings import duration
from joulie_cli import demo, looking_back, status
from joulie_cli.parts import PARTS, Wiring, until_told, wiring
from joulie_cli.up import run_up
from joulie_projections import database

OK, NOT_WELL, FAILED = 0, 1, 2
T = TypeVar("T")
Command = Callable[[argparse.Namespace, Wiring], int]


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        wires = wiring(args.command, args.data, args.config)
        return COMMANDS[args.command](args, wires)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        return OK  # who read our output has seen enough
    except Exception as error:
        told = _known(error)
        if told is None:
            raise
        print(f"joulie {args.command}: {told}", file=sys.stderr)
        return FAILED


def _known(error: BaseException) -> str | None:
    """The message of an error of ours, however deep in a group of tasks; None for a bug."""
    if isinstance(error, JoulieError):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        told = [_known(inner) for inner in error.exceptions]
        return told[0] if all(told) else None
    return None


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="joulie",
        description="Makes Kubernetes schedule for energy and GPUs, and can always say why.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, what: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=what, description=what)
        made.add_argument("--data", type=Path, metavar="DIR", help="the data directory")
        made.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
        return made

    _demo_options(command("demo", "everything, over a simulated cluster; no Kubernetes needed"))
    up = command("up", "all parts against a real cluster, in one process group")
    up.add_argument("--kubeconfig", metavar="FILE", help="how to reach the cluster")
    for name, what in (
        ("status", "what runs, how far it is, where it answers"),
        ("verify", "re-hash the decision log and check every link and signature"),
        ("replay", "fold all facts again and recompute every decision"),
    ):
        command(name, what).add_argument("--json", action="store_true", help="one JSON object")
    command("migrate", "bring the database to this version's schema")
    command("projector", "give events their order, keep twins, write the decision log")
    command("operator", "decide which nodes supply performance and which save")
    command("extender", "answer kube-scheduler")
    command("simulator", "publish the facts of a simulated cluster")
    return top


def _demo_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--nodes", type=int, default=200, metavar="N", help="nodes (200)")
    made.add_argument("--seed", type=int, default=1, metavar="S", help="of the workload (1)")
    made.add_argument("--headless", action="store_true", help="no live screen")
    made.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="TIME", help="end after, such as 45s"
    )
    made.add_argument("--json", action="store_true", help="one JSON object at the end")


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {duration.__doc__}") from error


def _demo(args: argparse.Namespace, wires: Wiring) -> int:
    wish = demo.Wish(args.nodes, args.seed, args.headless or args.json, args.seconds)
    screen = Console(stderr=True)
    summary = asyncio.run(_until_told(lambda told: demo.run_demo(wires, wish, told, screen)))
    if args.json:
        print(json.dumps(summary))
    else:
        print(_demo_farewell(summary, wires))
    return OK


async def _until_told(run: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Ctrl-C and SIGTERM ask for an end; they do not tear anything."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    return await run(told)


def _demo_farewell(summary: dict[str, Any], wires: Wiring) -> str:
    return (
        f"{summary['decisions']} decisions for {summary['pods']} pods on {summary['nodes']} nodes; "
        f"{summary['refused']} of them refused some node. Position {summary['position']}.\n"
        f"All of it is in {wires.data.path}. To prove it:\n"
        f"  joulie verify --data {wires.data.path}\n"
        f"  joulie replay --data {wires.data.path}"
    )


def _up(args: argparse.Namespace, wires: Wiring) -> int:
    asyncio.run(_until_told(lambda told: run_up(wires, args.kubeconfig, told)))
    return OK


def _status(args: argparse.Namespace, wires: Wiring) -> int:
    found = status.status_of(wires.data)
    print(json.dumps(found) if args.json else status.as_text(found, time.time_ns()))
    return OK if found["running"] else NOT_WELL


def _verify(args: argparse.Namespace, wires: Wiring) -> int:
    report = asyncio.run(looking_back.verify_data(wires))
    told: dict[str, Any] = {"entries": report.entries, "heads": report.heads}
    if report.flaw is not None:
        told |= {"first_bad": report.flaw.place, "what": report.flaw.what}
    if args.json:
        print(json.dumps(told))
    elif report.flaw is None:
        print(
            f"{report.entries} entries, {report.heads} signed heads, {report.batches} manifests: "
            "every hash, link and signature is right."
        )
    else:
        print(f"NOT what was written: {report.flaw.what}.")
    return OK if report.flaw is None else NOT_WELL


def _replay(args: argparse.Namespace, wires: Wiring) -> int:
    done = asyncio.run(looking_back.replay_data(wires))
    if args.json:
        told = {
            "events": done.events,
            "decisions": done.decisions,
            "mismatches": done.mismatches,
            "seconds": round(done.seconds, 3),
        }
        if done.told:
            told["told"] = [mismatch._asdict() for mismatch in done.told]  # type: ignore[assignment]
        print(json.dumps(told))
    else:
        print(
            f"{done.events} events folded and {done.decisions} decisions recomputed "
            f"in {done.seconds:.1f} s: {done.mismatches or 'no'} mismatch(es)."
        )
        for mismatch in done.told:
            print(f"  entry {mismatch.entry}: {mismatch.kind}: {mismatch.what}")
    return OK if not done.mismatches else NOT_WELL


def _migrate(_: argparse.Namespace, wires: Wiring) -> int:
    wires.data.create()
    engine = database.migrator(wires.data.database)
    try:
        print(f"{wires.data.database} is at schema {joulie_migrations.upgrade(engine)}.")
    finally:
        engine.dispose()
    return OK


def _part(args: argparse.Namespace, wires: Wiring) -> int:
    metrics.serve(*wires.bus.metrics_addr)
    asyncio.run(until_told(PARTS[args.command](wires)))
    return OK


COMMANDS: dict[str, Command] = {
    "demo": _demo,
    "up": _up,
    "status": _status,
    "verify": _verify,
    "replay": _replay,
    "migrate": _migrate,
    **dict.fromkeys(PARTS, _part),
}

if __name__ == "__main__":
    sys.exit(main())
