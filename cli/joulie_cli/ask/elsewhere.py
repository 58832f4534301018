"""Components that no `joulie up` of this machine has started: one by one, or in a cluster."""

import math
from typing import Any

from joulie_projections.history.history import History
from joulie_projections.history.installation import leader_in, replicas_in

BEHIND_S = 2.0  # a projector that keeps up is behind by less


def elsewhere_in(history: History) -> dict[str, Any]:
    """Empty if no projector leads."""
    leader = leader_in(history.connection)
    if leader is None:
        return {}
    behind_s = None if math.isinf(leader.behind_s) else leader.behind_s
    replicas = replicas_in(history.connection)
    return {
        "projector": leader._asdict() | {"behind_s": behind_s},
        "extenders": [replica._asdict() for replica in replicas],
    }


def warnings_of(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    behind_s = found["projector"]["behind_s"]
    if behind_s is None:
        return ["the projector does not know how far it is behind the broker"]
    if behind_s > BEHIND_S:
        return [f"the projector is {behind_s:.1f} s behind the broker, or does not reach it"]
    return []


def lines_of(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    leader = found["projector"]
    behind_s = leader["behind_s"]
    behind = "by an unknown time" if behind_s is None else f"{behind_s:.1f} s"
    projector = f"process {_process(leader['owner'])}, epoch {leader['epoch']}, {behind} behind"
    return [
        f"  projector   {projector}, lease for {leader['lease_s']:.1f} s more",
        *(_extender_line(each) for each in found["extenders"]),
    ]


def _extender_line(found: dict[str, Any]) -> str:
    return f"  {found['name']:<12}last answer {found['age_s']:.1f} s ago"


def _process(owner: str) -> str:
    """Its id and the beginning of the id of its boot."""
    match owner.split("/"):
        case [boot, _, pid, _, _]:
            return f"{pid} of boot {boot[:8]}"
        case _:
            return owner
