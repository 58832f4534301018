"""`joulie`: reads the command line, runs one thing, ends with an exit code.

0: done, all is well. 1: what was looked at is not well. 2: it could not be done; stderr says why.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from joulie_bus.errors import JoulieError
from joulie_bus.runtime.redaction import masked
from joulie_bus.runtime.settings import duration
from joulie_bus.streams.roles import Role
from joulie_cli.display import common_options
from joulie_cli.wiring import wired
from joulie_migrations import PHASES

FAILED = 2
COMMANDS = {
    "demo": "everything, over a simulated cluster; no Kubernetes needed",
    "up": "all parts beside a real cluster or none, in one process group",
    "status": "what runs, how far it is, where it answers",
    "explain": "why a pod is where it is; also `explain node NAME`, `explain plan ID`",
    "decisions": "what was answered, newest last",
    "plans": "what the operator decided, and why",
    "twin": "what was believed about a node, now or then",
    "verify": "re-hash the decision log and check every link and signature",
    "prove": "proof that an entry is in the log, to be checked without our code",
    "keys": "the keys that sign the log: list, rotate, retire",
    "diff": "prove that a later signed head goes on from an earlier one",
    "replay": "fold all facts again and recompute every decision and plan",
    "whatif": "the same past under other settings; changes nothing",
    "simulate": "what placement does to GPUs and to energy, beside kube-scheduler's own scores",
    "archive": "keep the log outside of broker and database, and restore it",
    "dead": "what could not be folded: list, show, retry",
    "rebuild": "fold all facts again beside the rows that serve, then flip",
    "gpus": "cards, who has them, and what is left of them",
    "grant": "what a user of the broker may do, for its configuration",
    "migrate": "bring the database to this version's schema",
    "projector": "give events their order, keep the twins, write the decision log",
    "operator": "decide which nodes supply performance and which save",
    "extender": "answer kube-scheduler",
    "console": "show people what happens and why: API, stream of decisions, web page",
    "simulator": "publish the facts of a simulated cluster",
}
ACTIONS = ("list", "show", "retry")  # of `joulie dead`
KEY_ACTIONS = ("list", "rotate", "retire")
WITH_JSON = (
    "demo",
    "status",
    "simulate",
    "dead",
    "keys",
    "rebuild",
    "gpus",
    *common_options.OPTIONS,
)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(common_options.joined(sys.argv[1:] if argv is None else argv))
    command = import_module(f"joulie_cli.commands.{args.command}")
    try:
        wires = wired(args.command, command.SETTINGS, args.data, args.config)
        code: int = command.run(args, wires)
    except (KeyboardInterrupt, BrokenPipeError):  # the reader of a pipe has seen enough
        return _silenced()
    except Exception as error:
        told = _known(error)
        if told is None:
            raise
        print(masked(f"joulie {args.command}: {told}"), file=sys.stderr)
        return FAILED
    return code


def _silenced() -> int:
    """What is still buffered has nobody to read it; Python would complain about that at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    for name, what in COMMANDS.items():
        made = commands.add_parser(name, help=what, description=what)
        made.add_argument("--data", type=Path, metavar="DIR", help="the data directory")
        made.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
        if name in WITH_JSON:
            made.add_argument("--json", action="store_true", help="one JSON object on stdout")
        if name in OPTIONS:
            OPTIONS[name](made)
    return top


def _migrate(made: argparse.ArgumentParser) -> None:
    made.add_argument("--phase", choices=PHASES, help="before or after the new code is rolled out")


def _dead(made: argparse.ArgumentParser) -> None:
    made.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    made.add_argument("position", type=int, nargs="?", help="of the one to show or retry")
    common_options.dead(made)


def _grant(made: argparse.ArgumentParser) -> None:
    made.add_argument("role", choices=list(Role), help="of the user")
    made.add_argument(
        "name", nargs="?", default="", help="node of an agent, replica of an extender"
    )


def _keys(made: argparse.ArgumentParser) -> None:
    made.add_argument("action", nargs="?", choices=KEY_ACTIONS, default="list", help="list")
    made.add_argument("key", nargs="?", metavar="KEY", help="to retire: its number in the list")
    made.add_argument(
        "--compromised-since", metavar="WHEN", help="an entry, a time, or -10m: believed up to here"
    )
    made.add_argument(
        "--wait", type=_seconds, default=20.0, metavar="TIME", help="for the projector (20s)"
    )


def _rebuild(made: argparse.ArgumentParser) -> None:
    made.add_argument("--from-snapshot", action="store_true", help="and not from the first fact")
    common_options.rebuild(made)


def _cluster(made: argparse.ArgumentParser) -> None:
    made.add_argument("--kubeconfig", metavar="FILE", help="how to reach the cluster")


def _simulator(made: argparse.ArgumentParser) -> None:
    """Checked by SimulatorOptions, and not here: `joulie demo` passes them on."""
    made.add_argument("--nodes", metavar="N", help="nodes (200)")
    made.add_argument("--seed", metavar="S", help="of the workload (1)")
    made.add_argument("--speed", metavar="X", help="simulated seconds per second (60)")
    made.add_argument(
        "--pods-per-second", metavar="R", help="that come, on the average of a simulated day"
    )
    made.add_argument("--trace", type=Path, metavar="FILE", help="sizes of pods: openb's pod list")
    made.add_argument(
        "--bind-verb", metavar="PATH", help="by which the extender binds pods with GPUs"
    )


def _demo(made: argparse.ArgumentParser) -> None:
    _simulator(made)
    made.add_argument("--headless", action="store_true", help="no live screen")
    made.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="TIME", help="end after, such as 45s"
    )


def _gpus(made: argparse.ArgumentParser) -> None:
    made.add_argument("--node", metavar="NAME", help="of this node")
    made.add_argument("--model", metavar="NAME", help="of this model, as a pod would write it")
    made.add_argument("--pod", metavar="POD", help="of this pod: uid, name or namespace/name")
    made.add_argument("--free", action="store_true", help="with room for somebody")


def _simulate(made: argparse.ArgumentParser) -> None:
    made.add_argument("what", choices=("gpus", "energy"), help="what is compared")
    made.add_argument("--trace", type=Path, metavar="FILE", help="gpus: openb's pod list")
    made.add_argument("--cluster", type=Path, metavar="FILE", help="gpus: openb's node list")
    made.add_argument("--nodes", type=int, metavar="N", help="of the fleet (gpus 500, energy 2500)")
    made.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each policy (3)")
    made.add_argument("--weight", type=int, default=1, metavar="W", help="gpus: the extender's (1)")
    made.add_argument("--suite", choices=("compat",), default="compat", help="energy: which jobs")
    made.add_argument("--hours", type=float, metavar="H", help="energy: simulated time (48)")
    made.add_argument("--policies", default="", metavar="A,B", help="energy: all by default")
    made.add_argument("--quick", action="store_true", help="energy: 500 nodes, 12 hours, one seed")


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {duration.__doc__}") from error


OPTIONS = {
    "demo": _demo,
    "simulator": _simulator,
    "up": _cluster,
    "simulate": _simulate,
    "operator": _cluster,
    "migrate": _migrate,
    "dead": _dead,
    "grant": _grant,
    "keys": _keys,
    "rebuild": _rebuild,
    "gpus": _gpus,
    **common_options.OPTIONS,
}


if __name__ == "__main__":
    sys.exit(main())
