"""`joulie plans --defragment`: which pods to move so that free GPUs are of use to others."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from joulie_cli.log_access.past import history_of
from joulie_cli.wiring import Wiring
from joulie_extender.defragment.movable_pods import Judged
from joulie_extender.defragment.plan import DefragmentationPlan, defragmentation_plan
from joulie_extender.defragment.search import Budget, Summary
from joulie_extender.gpu.models import aliases_of
from joulie_operator.cluster_settings import IN_CLUSTER
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.power.disruptions import Disruptions, disruptions
from joulie_projections.catalog_file import CatalogSettings

NOT_ASKED = (
    "PodDisruptionBudgets and volumes are not in the log: --kubeconfig FILE asks the API server"
)
ONLY_ADVICE = (
    "Nothing is evicted. kube-scheduler decides where a pod goes; affinities, taints and quotas "
    "are not considered here"
)


def report_of(args: argparse.Namespace, wires: Wiring) -> dict[str, Any]:
    with history_of(wires) as history:
        cluster_state = history.cluster_state()
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    judged, notes = Judged(), [NOT_ASKED, ONLY_ADVICE]
    if args.kubeconfig:
        judged = judged_by(asyncio.run(_asked(args.kubeconfig, cluster_state.namespaces)))
        notes = [ONLY_ADVICE]
    return as_json(defragmentation_plan(cluster_state, aliases, args.moves, judged), notes)


async def _asked(cluster: str, namespaces: Mapping[str, str]) -> Disruptions:
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        return await disruptions(api, namespaces)


def judged_by(found: Disruptions) -> Judged:
    return Judged(found.stays, [Budget(*each) for each in found.allowed])


def as_json(plan: DefragmentationPlan, notes: list[str]) -> dict[str, Any]:
    return {
        "pods": plan.pods,
        "before": plan.before._asdict(),
        "after": plan.after._asdict(),
        "gains": round(sum(move.gains for move in plan.moves), 2),
        "cost": {"pods": len(plan.moves), "cores": plan.cores, "gpus": plan.gpus},
        "moves": [move._asdict() for move in plan.moves],
        "stays": [each._asdict() for each in plan.stays],
        "notes": notes,
    }


def as_text(report: dict[str, Any], most: int) -> str:
    before, after = Summary(**report["before"]), Summary(**report["after"])
    cost, moves = report["cost"], report["moves"]
    lines = [
        f"A plan to make free GPUs usable: {len(moves)} of {report['pods']} pods would move",
        f"  before     {_summary(before)}",
        f"  after      {_summary(after)}",
        f"  value      {before.unusable - after.unusable:.2f} GPUs of use that were of none; "
        f"{before.expected_loss - after.expected_loss:.2f} more that a pod like those that asked "
        f"could use; {after.cards - before.cards:+d} whole cards, "
        f"{after.groups - before.groups:+d} linked groups, {after.nodes - before.nodes:+d} nodes",
        f"  cost       {cost['pods']} pods begin again, with {cost['gpus']:.2f} GPUs and "
        f"{cost['cores']:.1f} cores",
    ]
    if not moves:
        lines[2:] = ["  no move gains a tenth of a GPU for each pod that it moves"]
    lines += list(_moves(moves, most))
    lines += [
        f"  stay       {each['pods']}: {each['because']} ({_named(each)})"
        for each in _stays(report)
    ]
    return "\n".join([*lines, *(f"  note       {note}." for note in report["notes"])])


def _summary(found: Summary) -> str:
    return (
        f"{found.free:.2f} GPUs free, {found.unusable:.2f} of no use to any pod like those that "
        f"asked; of use: {found.cards} whole cards, {found.groups} whole linked groups, "
        f"{found.nodes} nodes without any pod on their cards"
    )


def _moves(moves: list[dict[str, Any]], most: int) -> Iterator[str]:
    for number, move in enumerate(moves[:most], 1):
        yield (
            f"  {number:>3}. {move['pod']} from {move['node']}, would fit on {move['would_fit']} "
            f"(+{move['gains']:.2f} GPUs): {move['because']}"
        )
    if len(moves) > most:
        yield f"       and {len(moves) - most} more: --limit {len(moves)}"


def _stays(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["stays"]
    return found


def _named(each: dict[str, Any]) -> str:
    more = ", ..." if each["pods"] > len(each["examples"]) else ""
    return f"{', '.join(each['examples'])}{more}"
