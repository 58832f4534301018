"""`joulie`: parses the command line, runs one command and returns its exit code.

0: done. 1: done, and the check failed or nothing runs. 2: it failed; the error is on stderr.
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

FAILED = 2
COMMANDS = {
    "demo": "run all parts over a simulated cluster, without Kubernetes",
    "up": "run all parts in one process group, for a real cluster or without one",
    "status": "show running parts, their positions and their addresses",
    "explain": "explain why a pod is where it is; also `explain node NAME`, `explain plan ID`",
    "decisions": "list the entries of the decision log, newest last",
    "plans": "list the operator's plans and their reasons",
    "twin": "show the twin of a node, now or at an earlier position",
    "verify": "re-hash the decision log and check every link and signature",
    "prove": "print a proof that an entry is in the log, verifiable without Joulie",
    "keys": "list, rotate and retire the keys that sign the log",
    "diff": "prove that the log was only appended to between two signed heads",
    "replay": "fold all facts again and recompute every decision and plan",
    "whatif": "recompute past decisions with other settings; changes nothing",
    "simulate": "compare placement policies with kube-scheduler's default, by GPUs or energy",
    "archive": "write the log to an archive outside the broker and the database, or restore it",
    "dead": "list, show and retry messages that could not be folded",
    "rebuild": "fold all facts into a new generation of rows, then switch to it",
    "energy": "show the energy of nodes, pods and plans in a period, from the ledger",
    "gpus": "show GPU cards, the pods that use them and their free memory",
    "grant": "print the permissions of a broker user for nats-server's configuration",
    "scheduler-config": "print the configuration of a kube-scheduler that calls this installation",
    "migrate": "migrate the database to this version's schema and create missing streams",
    "release": "remove labels, NodeTwins and statuses from the cluster, before an uninstall",
    "projector": "order events, fold them into the twins, write the decision log",
    "ledger": "follow the log and keep the ledger of energy",
    "operator": "assign power profiles to nodes",
    "extender": "answer kube-scheduler's filter, prioritize and bind calls",
    "console": "serve the API, the stream of decisions and the web page",
    "simulator": "publish the facts of a simulated cluster",
}
MIGRATION_PHASES = ("pre", "post")  # joulie_migrations.PHASES, without importing SQLAlchemy
SCHEDULER_CONFIGURATIONS = ("energy", "gpu", "split")  # joulie_extender's, without importing it
ACTIONS = ("list", "show", "retry")  # of `joulie dead`
ENERGY_BY = ("namespace", "workload", "node", "plan", "pod")
KEY_ACTIONS = ("list", "rotate", "retire")
WITH_JSON = (
    "demo",
    "status",
    "simulate",
    "dead",
    "keys",
    "rebuild",
    "gpus",
    "energy",
    "scheduler-config",
    *common_options.OPTIONS,
)


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(common_options.joined(sys.argv[1:] if argv is None else argv))
    # Imported once the command line is valid: it takes half a second, and --help does without.
    from joulie_cli.wiring import wired

    command = import_module(f"joulie_cli.commands.{args.command.replace('-', '_')}")
    try:
        wires = wired(args.command, command.SETTINGS, args.data, args.config)
        code: int = command.run(args, wires)
    except (KeyboardInterrupt, BrokenPipeError):  # the reader of a pipe closed it
        return _discard_output()
    except Exception as error:
        message = _message_of(error)
        if message is None:
            raise
        print(masked(f"joulie {args.command}: {message}"), file=sys.stderr)
        return FAILED
    return code


def _discard_output() -> int:
    """Redirect stdout to the null device: Python flushes at exit and reports a closed pipe."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _message_of(error: BaseException) -> str | None:
    """The message of a JoulieError, also within exception groups; None for any other error."""
    if isinstance(error, JoulieError):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        message = [_message_of(inner) for inner in error.exceptions]
        return message[0] if all(message) else None
    return None


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="joulie",
        description="Energy- and GPU-aware scheduling for Kubernetes, with an auditable log.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in COMMANDS.items():
        parser = commands.add_parser(name, help=what, description=what)
        parser.add_argument("--data", type=Path, metavar="DIR", help="the data directory")
        parser.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
        if name in WITH_JSON:
            parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
        if name in OPTIONS:
            OPTIONS[name](parser)
    return top


def _migrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--phase", choices=MIGRATION_PHASES, help="before or after the new code is rolled out"
    )


def _dead(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument(
        "position", type=int, nargs="?", help="position of the message to show or retry"
    )
    common_options.dead(parser)


def _grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role", choices=list(Role), help="role of the user")
    parser.add_argument(
        "name", nargs="?", default="", help="the node of an agent or the replica of an extender"
    )


def _keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=KEY_ACTIONS, default="list", help="list")
    parser.add_argument("key", nargs="?", metavar="KEY", help="number of the key to retire")
    parser.add_argument(
        "--compromised-since", metavar="WHEN", help="an entry, a time, or -10m; valid before"
    )
    parser.add_argument(
        "--wait", type=_seconds, default=20.0, metavar="TIME", help="wait for the projector (20s)"
    )


def _rebuild(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from-snapshot", action="store_true", help="not from the first fact")
    common_options.rebuild(parser)


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the cluster")


def _scheduler_config(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--mode",
        choices=("own", "patch"),
        default="patch",
        help="own: a second kube-scheduler beside the extender; patch: yours (patch)",
    )
    parser.add_argument(
        "--configuration",
        choices=SCHEDULER_CONFIGURATIONS,
        help="energy; gpu or split where the extender binds (by EXTENDER_BINDS)",
    )
    parser.add_argument("--url", metavar="URL", help="the extender, as kube-scheduler reaches it")
    parser.add_argument("--namespace", metavar="NAME", help="of the installation (POD_NAMESPACE)")
    parser.add_argument(
        "--certificates",
        type=Path,
        default=Path("/etc/joulie"),
        metavar="DIR",
        help="where kube-scheduler has ca.crt, scheduler.crt, scheduler.key (/etc/joulie)",
    )
    parser.add_argument("--name", metavar="NAME", help="schedulerName of the profile")
    parser.add_argument("--weight", type=int, default=1, metavar="W", help="of the score (1)")
    parser.add_argument(
        "--percentage", type=int, default=0, metavar="N", help="percentageOfNodesToScore"
    )
    parser.add_argument("--extenders", action="store_true", help="only the block `extenders`")


def _release(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="DEPLOYMENT",
        help="scale this Deployment of POD_NAMESPACE to 0 first; may be given again",
    )
    parser.add_argument(
        "--wait", type=_seconds, default=60.0, metavar="TIME", help="wait for the Lease (60s)"
    )


def _simulator(parser: argparse.ArgumentParser) -> None:
    """SimulatorOptions checks the values: `joulie demo` passes them on unchanged."""
    parser.add_argument("--nodes", metavar="N", help="number of nodes (200)")
    parser.add_argument("--seed", metavar="S", help="seed of the workload (1)")
    parser.add_argument("--speed", metavar="X", help="simulated seconds per second (60)")
    parser.add_argument("--pods-per-second", metavar="R", help="average over a simulated day")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="pod sizes: openb's pod list")
    parser.add_argument(
        "--bind-verb", metavar="PATH", help="the extender's verb for pods with GPUs"
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    _simulator(parser)
    parser.add_argument("--headless", action="store_true", help="no live screen")
    parser.add_argument(
        "--for",
        dest="seconds",
        type=_seconds,
        metavar="TIME",
        help="stop after this time, such as 45s",
    )


def _gpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", metavar="NAME", help="cards of this node")
    parser.add_argument(
        "--model", metavar="NAME", help="cards of this model, as in a pod's annotation"
    )
    parser.add_argument(
        "--pod", metavar="POD", help="cards of this pod: uid, name or namespace/name"
    )
    parser.add_argument("--free", action="store_true", help="only healthy cards with free memory")


def _energy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=ENERGY_BY, default="namespace", help="namespace")
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or -10m (all)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or -10m (now)")
    parser.add_argument("--csv", action="store_true", help="one line per name")


def _ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when it has caught up")
    parser.add_argument(
        "--rebuild", action="store_true", help="delete it, and fold it from the first fact, once"
    )
    common_options.ledger(parser)


def _simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("gpus", "energy"), help="the comparison")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="gpus: openb's pod list")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="gpus: openb's node list")
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes (500; suite compat 2500)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each policy (3)")
    parser.add_argument(
        "--weight", type=int, default=1, metavar="W", help="gpus: the extender's weight (1)"
    )
    parser.add_argument(
        "--suite", choices=("fair", "compat", "trace"), default="fair", help="energy: the jobs"
    )
    parser.add_argument("--hours", type=float, metavar="H", help="energy: simulated time (48)")
    parser.add_argument("--policies", default="", metavar="A,B", help="energy: all by default")
    parser.add_argument(
        "--quick", action="store_true", help="energy: fewer nodes and hours, one seed"
    )
    parser.add_argument("--loads", default="", metavar="A,B", help="energy: low, mid, high (all)")
    parser.add_argument(
        "--sleep", choices=("on", "off", "both"), help="energy: whether empty nodes sleep (both)"
    )


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
    "release": _release,
    "scheduler-config": _scheduler_config,
    "dead": _dead,
    "grant": _grant,
    "keys": _keys,
    "rebuild": _rebuild,
    "gpus": _gpus,
    "energy": _energy,
    "ledger": _ledger,
    **common_options.OPTIONS,
}


if __name__ == "__main__":
    sys.exit(main())
