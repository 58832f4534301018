"""A plan of moves that make free GPUs usable, as an answer."""

from typing import Any

from joulie_extender.defragment.plan import DefragmentationPlan

NOT_ASKED = (
    "PodDisruptionBudgets and volumes are not in the log: `joulie plans --defragment --kubeconfig "
    "FILE` asks the API server"
)
ONLY_ADVICE = (
    "Nothing is evicted. kube-scheduler decides where a pod goes; affinities, taints and quotas "
    "are not considered here"
)


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
