"""`kubectl joulie`: explain pods and look at nodes, plans, cards and decisions of the cluster."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joulie_bus.errors import JoulieError, KubernetesRefused
from joulie_bus.runtime import logging
from joulie_cli.kubectl import answers, nodes
from joulie_cli.kubectl.console import NAMESPACE, SECRET, Console, Place
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer, ApiUnreachable
from joulie_operator.resources.crds import yaml

HOME = Path.home() / ".kube/config"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.configure("error", "console", "kubectl")
    try:
        asyncio.run(_run(args))
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
    return 0


async def _run(args: argparse.Namespace) -> None:
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = args.kubeconfig or (Path(named) if named else HOME)
    async with ApiServer.of(path, args.context) as api:
        if args.command == "status":
            await nodes.status(api, args)
            return
        console = await Console.of(api, Place(args.installation, args.token_secret))
        answer = await answers.ANSWERS[args.command](console, args)
    if args.output == "json":
        print(json.dumps(answer.tree))
    else:
        print((yaml(answer.tree) if args.output == "yaml" else answer.text).rstrip("\n"))


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kubectl joulie", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="show nodes with their profiles and power")
    status.add_argument("-w", "--watch", action="store_true", help="refresh on every change")
    status.add_argument("-o", "--output", choices=("wide", "json"), help="more columns, or JSON")
    status.add_argument("--sort-by", choices=sorted(nodes.SORTS), default="node", metavar="COLUMN")
    _connection(status)
    explain = _console(commands, "explain", "explain why a pod is where it is")
    explain.add_argument("pod", metavar="POD", help="name, namespace/name or uid")
    explain.add_argument("-n", "--namespace", default="", metavar="NAME", help="of the pod")
    twins = _console(commands, "twins", "list the digital twins of the nodes, or show one")
    twins.add_argument("node", nargs="?", default="", metavar="NODE")
    decisions = _console(commands, "decisions", "list the newest decisions")
    decisions.add_argument("--pod", default="", metavar="NAMESPACE/NAME")
    for parser in (decisions, _console(commands, "plans", "list the newest plans and transitions")):
        parser.add_argument("--node", default="", metavar="NAME", help="about this node")
    gpus = _console(commands, "gpus", "list GPU cards with their free memory")
    gpus.add_argument("--node", default="", metavar="NAME", help="cards of this node")
    gpus.add_argument("--model", default="", metavar="NAME", help="cards of this model")
    return top


def _console(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what)
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="the API's own answer")
    parser.add_argument("--limit", type=_limit, default=20, metavar="N", help="the newest N (20)")
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


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
