"""A plan of moves that make free GPUs usable, as an answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from joulie_extender.defragment.plan import DefragmentationPlan

NOT_ASKED = (
    "PodDisruptionBudgets and volumes are not in the log: `joulie plans --defragment --kubeconfig "
    "FILE` asks the API server"
)
PLACES = (
    "kube-scheduler decides where a pod goes; affinities, taints and quotas are not considered here"
)
ONLY_ADVICE = f"Nothing is evicted. {PLACES}"


def defragment_of(plan: DefragmentationPlan, notes: list[str]) -> dict[str, Any]:
    return {
        "pods": plan.pods,
        "before": plan.before._asdict(),
        "after": plan.after._asdict(),
        "gains": round(sum(move.gains for move in plan.moves), 2),
        "cost": {"pods": len(plan.moves), "cores": plan.cores, "gpus": plan.gpus},
        "moves": [move._asdict() for move in plan.moves],
        "stays": [{**each._asdict(), "examples": list(each.examples)} for each in plan.stays],
        "notes": notes,
    }


def carried_out(
    report: dict[str, Any], outcomes: Sequence[NamedTuple], notes: Sequence[str]
) -> dict[str, Any]:
    """The same report, in which each move has its outcome."""
    pairs = zip(report["moves"], outcomes, strict=True)
    moves = [{**move, "outcome": outcome._asdict()} for move, outcome in pairs]
    return {**report, "moves": moves, "notes": [*report["notes"], *notes]}
