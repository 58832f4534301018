"""`kubectl joulie`: explain pods and look at nodes, plans, cards and decisions of the cluster."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from joulie.client.console import ConsoleClient
from joulie.client.proxy import NAMESPACE, SECRET, Place, ProxyConnection
from joulie_bus.errors import JoulieError, KubernetesRefused
from joulie_bus.runtime import logging
from joulie_cli.ask import decisions, explain, gpus, place, plans, report
from joulie_cli.asking import questions
from joulie_cli.asking.source_type import Source
from joulie_cli.command_line import options as shared
from joulie_cli.command_line.one_line_errors import Parser
from joulie_cli.command_line.parser import examples, joined
from joulie_cli.display.output import require_writable, show
from joulie_cli.kubectl import nodes
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer, ApiUnreachable

EXAMPLES = {  # of each command; a test gives them to the parser
    "status": ["kubectl joulie status", "kubectl joulie status --sort-by headroom -o wide"],
    "explain": ["kubectl joulie explain train-0 -n team-a"],
    "gpus": ["kubectl joulie gpus --free"],
    "decisions": ["kubectl joulie decisions --node node-17 --since -10m"],
    "twins": ["kubectl joulie twins", "kubectl joulie twins node-17"],
    "plans": ["kubectl joulie plans --node node-17"],
    "place": ["kubectl joulie place -f deployment.yaml -n team-a"],
    "report": ["kubectl joulie report --from -24h --out day.html"],
}
HOME = Path.home() / ".kube/config"


def main(argv: Sequence[str] | None = None) -> int:
    args = parsed(sys.argv[1:] if argv is None else argv)
    logging.configure("error", "console", "kubectl")
    try:
        return asyncio.run(_run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except KubernetesRefused as error:
        hint = " Is Joulie installed? See deploy/crds." if error.code == NOT_FOUND else ""
        print(f"kubectl joulie: {error}{hint}", file=sys.stderr)
        return 2
    except (JoulieError, *ApiUnreachable) as error:
        print(f"kubectl joulie: {error or type(error).__name__}", file=sys.stderr)
        return 2


async def _run(args: argparse.Namespace) -> int:
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = args.kubeconfig or (Path(named) if named else HOME)
    async with ApiServer.of(path, args.context) as api:
        if args.command == "status":
            await nodes.status(api, args)
            return 0
        connection = await ProxyConnection.of(api, Place(args.installation, args.token_secret))
        console = ConsoleClient.over(connection)
        if args.command == "report":
            report.require_form(args)
            require_writable("--out", args.out)
            report.write(args, await report.served(console, args))
            return 0
        answered = await args.question(console, args)
    show(args, answered.document, answered.text)
    return place.exit_code(args, answered.document) if args.command == "place" else 0


def parsed(words: Sequence[str]) -> argparse.Namespace:
    return _parser().arguments(joined(words))


def _parser() -> Parser:
    top = Parser(prog="kubectl joulie", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser(
        "status",
        help="show nodes with their profiles and power",
        epilog=examples(EXAMPLES["status"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    status.add_argument("-w", "--watch", action="store_true", help="refresh on every change")
    status.add_argument("-o", "--output", choices=("wide", "json"), help="more columns, or JSON")
    status.add_argument("--sort-by", choices=sorted(nodes.SORTS), default="node", metavar="COLUMN")
    _connection(status)
    asked = _console(commands, "explain", explain.question, _explained)
    asked.add_argument("-n", "--namespace", default="", metavar="NAME", help="of the pod")
    _console(commands, "gpus", gpus.question, questions.gpus)
    _console(commands, "decisions", decisions.question, questions.decisions)
    _console(commands, "twins", _twins, questions.nodes)
    _console(commands, "plans", plans.question, questions.plans)
    asked = _console(commands, "place", place.question, questions.place)
    asked.add_argument("-n", "--namespace", default="", metavar="NAME", help=place.NAMESPACE)
    _console(commands, "report", report.question, report.served)
    return top


async def _explained(source: Source, args: argparse.Namespace) -> questions.Answered:
    """kubectl gives the namespace by an option."""
    question = explain.question_of(args)
    if args.namespace and question is questions.pod:
        args.what = [f"{args.namespace}/{args.what[-1]}"]
    return await question(source, args)


def _twins(parser: argparse.ArgumentParser) -> None:
    """list the digital twins of the nodes, or show one."""
    shared.output(parser)
    shared.newest(parser)
    parser.add_argument("node", nargs="?", default="", metavar="NODE")


def _console(
    commands: "argparse._SubParsersAction[Parser]",
    name: str,
    options: Callable[[argparse.ArgumentParser], None],
    question: Callable[[ConsoleClient, argparse.Namespace], Awaitable[object]],
) -> argparse.ArgumentParser:
    """A question of `joulie`, with the API server's proxy as its way to a console."""
    about = (sys.modules[options.__module__].__doc__ if options.__name__ == "question" else "") or (
        options.__doc__ or ""
    )
    what = about.splitlines()[0].removesuffix(".")
    parser = commands.add_parser(
        name,
        help=what,
        description=what,
        epilog=examples(EXAMPLES[name]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options(parser)
    parser.set_defaults(question=question)
    parser.add_argument(
        "--installation", default=NAMESPACE, metavar="NAME", help=f"namespace ({NAMESPACE})"
    )
    parser.add_argument(
        "--token-secret", default=SECRET, metavar="NAME", help=f"Secret of the token ({SECRET})"
    )
    _connection(parser)
    return parser


def _connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the cluster")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")


if __name__ == "__main__":
    sys.exit(main())
