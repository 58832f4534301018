"""list the operator's plans and their reasons.

joulie plans --node node-17
joulie plans --next 15m
joulie plans --defragment
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    question(parser)
    parser.add_argument(
        "--next",
        nargs="?",
        const=0.0,
        type=shared.seconds,
        metavar="TIME",
        help="what the operator would plan next, or after TIME (15m) if nothing else happens",
    )
    parser.add_argument(
        "--defragment",
        action="store_true",
        help="which pods to move so that free GPUs are of use to pods that ask for GPUs",
    )
    parser.add_argument(
        "--moves", type=shared.count, default=20, metavar="N", help="defragment: at most N (20)"
    )
    parser.add_argument(
        "--evict",
        action="store_true",
        help="defragment: carry the plan out; evicts pods of the cluster of --kubeconfig",
    )
    shared.cluster(parser)
    shared.source(parser)


def question(parser: argparse.ArgumentParser) -> None:
    """Without where it is asked: `kubectl joulie` has other options for that."""
    shared.output(parser)
    shared.newest(parser)
    parser.add_argument("--node", metavar="NODE", help="what plans did to this node")
    parser.add_argument("--all", action="store_true", help="include plans without changes")


def program() -> Program:
    from joulie_cli.asking.sources import settings_of_local_data

    return Program((), run, settings_of_local_data)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_cli.asking import questions
    from joulie_cli.asking.sources import asked

    if args.evict and not (args.defragment and args.kubeconfig):
        why = "--evict carries out --defragment in the cluster of --kubeconfig FILE: give all three"
        print(f"joulie plans: {why}. Nothing was evicted.", file=sys.stderr)
        return 2
    if args.defragment and args.kubeconfig:
        return _in_cluster(args, wires)
    if args.defragment:
        return asked(args, wires, questions.defragment)
    return asked(args, wires, questions.plans if args.next is None else questions.next_plan)


def _in_cluster(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_answers import defragment_in_cluster
    from joulie_answers.text.defragment import defragment_text
    from joulie_cli.display.output import show

    if not args.evict:
        report, is_complete = defragment_in_cluster.report_of(args, wires), True
    else:
        report, is_complete = defragment_in_cluster.carry_out(args, wires, _say)
    show(args, report, defragment_text(report, args.limit))
    return 0 if is_complete else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
