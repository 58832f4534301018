"""Which pods wait for a scheduler, and when one was placed last."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from joulie_answers.doctor.judgement.calls import NS, UNSEEN_POD_S, Waiting


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    creation_timestamp: datetime
    deletion_timestamp: datetime | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Spec(msgspec.Struct):
    gates: list[msgspec.Raw] = msgspec.field(default_factory=list, name="schedulingGates")


class PodSeen(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def scheduled(self) -> _Condition | None:
        """The condition that a scheduler writes when it looks at the pod."""
        return next((each for each in self.status.conditions if each.type == "PodScheduled"), None)


class Placements(NamedTuple):
    waiting: Waiting
    newest: int  # when a pod got its node, in ns; 0 if none has


def placements_in(waiting: Sequence[PodSeen], placed: Sequence[PodSeen], now: int) -> Placements:
    alive = [pod for pod in waiting if pod.metadata.deletion_timestamp is None]
    names = [
        f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in alive if _is_unseen(pod, now)
    ]
    times = [
        condition.last_transition_time
        for pod in placed
        if (condition := pod.scheduled) is not None and condition.status == "True"
    ]
    newest = max((_ns(moment) for moment in times if moment is not None), default=0)
    return Placements(Waiting(names, len(alive)), newest)


def _is_unseen(pod: PodSeen, now: int) -> bool:
    """A pod with scheduling gates waits for whatever removes them."""
    age_s = (now - _ns(pod.metadata.creation_timestamp)) / NS
    return pod.scheduled is None and not pod.spec.gates and age_s > UNSEEN_POD_S


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * NS)
