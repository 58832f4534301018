"""The commands that read the console: a request, and its answer as text and as a tree."""

import argparse
import datetime
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from joulie_bus.errors import NotInTheLog
from joulie_cli.kubectl.console import Console

Tree = dict[str, Any]


class Answer(NamedTuple):
    tree: Tree
    text: str


async def explain(console: Console, args: argparse.Namespace) -> Answer:
    name = f"{args.namespace}/{args.pod}" if args.namespace else args.pod
    found = await console.get(f"/v1/pods/{quote(await _uid(console, name), safe='')}")
    return Answer(found, "\n".join(found["explanation"]))


async def _uid(console: Console, name: str) -> str:
    """Of a pod that exists, else of the newest decision about a pod of that name."""
    pods = (await console.get("/v1/pods", q=name, limit="1000"))["items"]
    wanted = [pod for pod in pods if name in _names(pod)]
    if len({_full(pod) for pod in wanted}) > 1:
        named = ", ".join(sorted({_full(pod) for pod in wanted})[:5])
        raise NotInTheLog(f"Several pods have the name {name}: {named}. Give --namespace.")
    if wanted:
        return str(wanted[0]["uid"])
    decisions = (await console.get("/v1/decisions", pod=name, limit="1"))["items"]
    if not decisions:
        raise NotInTheLog(f"No pod and no decision has the name {name}. Give namespace/name.")
    return str(decisions[0]["pod_uid"])


def _full(pod: Mapping[str, Any]) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def _names(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    return _full(pod), pod["name"], pod["uid"]


async def twins(console: Console, args: argparse.Namespace) -> Answer:
    if args.node:
        found = await console.get(f"/v1/nodes/{quote(args.node, safe='')}")
        return Answer(found, _one_twin(found))
    found = await console.get("/v1/nodes", limit=str(args.limit))
    rows = [_twin_row(node) for node in found["items"]]
    head = ["NODE", "CLASS", "POWER", "PODS", "GPUS", "WATTS", "CAP-W", "HEADROOM", "COOLING"]
    return Answer(found, _counted(found, _table(head, rows)))


def _twin_row(node: Mapping[str, Any]) -> list[object]:
    keys = ("name", "class", "power_state", "pods", "gpus", "measured_w", "capped_w")
    return [*(node[key] for key in keys), node["headroom"], node["cooling"]]


def _one_twin(found: Tree) -> str:
    head = ["NODE", "CLASS", "POWER", "PODS", "GPUS", "WATTS", "CAP-W", "HEADROOM", "COOLING"]
    moves = [
        [_time(each["at_ms"]), each["plan"], each["kind"], each["to"], each["because"]]
        for each in found["transitions"]
    ]
    lines = [_table(head, [_twin_row(found["node"])])]
    if moves:
        lines += ["", _table(["AT", "PLAN", "KIND", "TO", "BECAUSE"], moves)]
    return "\n".join(lines)


async def plans(console: Console, args: argparse.Namespace) -> Answer:
    found = await console.get("/v1/plans", node=args.node, limit=str(args.limit))
    rows = [_plan_row(item) for item in found["items"]]
    return Answer(found, _table(["POSITION", "AT", "PLAN", "NODE", "WHAT", "BECAUSE"], rows))


def _plan_row(item: Mapping[str, Any]) -> list[object]:
    if (move := item.get("transition")) is not None:
        what = f"{move['kind']} {move['to']}".strip()
        place = [item["position"], _time(item["at_ms"]), move["plan"], move["node"]]
        return [*place, what, move["because"]]
    plan = item["plan"]
    what = f"{plan['changes']} changes by {plan['policy']}"
    return [item["position"], _time(item["at_ms"]), plan["plan"], None, what, plan["because"]]


async def gpus(console: Console, args: argparse.Namespace) -> Answer:
    query = {"node": args.node, "model": args.model, "limit": str(args.limit)}
    found = await console.get("/v1/gpus", **query)
    rows = [
        [
            *(card["uuid"], card["node"], card["model"]),
            *(card["total_mb"], card["total_mb"] - card["allocated_mb"] - card["claimed_mb"]),
            *("yes" if card["healthy"] else "no", len(card["claims"])),
        ]
        for card in found["items"]
    ]
    head = ["CARD", "NODE", "MODEL", "MB", "FREE-MB", "HEALTHY", "CLAIMS"]
    return Answer(found, _counted(found, _table(head, rows)))


async def decisions(console: Console, args: argparse.Namespace) -> Answer:
    query = {"pod": args.pod, "node": args.node, "limit": str(args.limit)}
    found = await console.get("/v1/decisions", **query)
    rows = [
        [each["entry"], _time(each["at_ms"]), each["verb"], _full(each), each["text"]]
        for each in found["items"]
    ]
    return Answer(found, _table(["ENTRY", "AT", "VERB", "POD", "WHAT"], rows))


ANSWERS: dict[str, Callable[[Console, argparse.Namespace], Awaitable[Answer]]] = {
    "explain": explain,
    "twins": twins,
    "plans": plans,
    "gpus": gpus,
    "decisions": decisions,
}

# --- text ---------------------------------------------------------------------------------------


def _time(ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _counted(found: Tree, table: str) -> str:
    shown = len(found["items"])
    return table if shown == found["total"] else f"{table}\n{shown} of {found['total']}; --limit"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
