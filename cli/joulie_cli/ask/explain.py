"""`joulie explain`: why a pod was placed where it is; also `node NAME` and `plan ID|POSITION`."""

import argparse

from joulie_bus.errors import NotInTheLog
from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]
UNNAMED = {
    "node": "`joulie explain node NAME` explains a node",
    "plan": "`joulie explain plan ID` explains a plan, and `joulie plans` lists them",
}


def run(args: argparse.Namespace, wires: Wiring) -> int:
    match args.what:
        case ["node", _]:
            return asked(args, wires, questions.node_changes)
        case ["plan", _]:
            return asked(args, wires, questions.plan)
        case ["node" | "plan" as what]:
            raise NotInTheLog(
                f"Nothing to explain. {UNNAMED[what]}. A pod of this name is `explain pod {what}`."
            )
        case [pod] | ["pod", pod]:
            args.what = [pod]
            return asked(args, wires, questions.pod)
        case _:
            raise NotInTheLog(
                "Nothing to explain. Give a pod (namespace/name or uid), `node NAME` or `plan ID`."
            )
