"""Requests of pods that are changed in place, by consent. Each event is about one pod of a node."""

from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import PlanStep
from joulie_bus.events.bounds import (
    Bytes,
    Count,
    CpuMilli,
    Holder,
    Mib,
    Name,
    ShareMilli,
    Text,
    Uid,
    Word,
)

MOST_CONTAINERS = 1000  # of one pod
Change = Literal["lower", "raise", "give-back"]


class ContainerRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one container requests. None: nothing of this kind."""

    name: Name
    cpu_milli: CpuMilli | None = None
    memory_bytes: Bytes | None = None


Requests = Annotated[tuple[ContainerRequest, ...], msgspec.Meta(max_length=MOST_CONTAINERS)]


class UseBasis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the ledger has of the pods of a workload: every number that a recommendation uses."""

    seconds: Count  # of pods, for which their use is known
    history_s: Count  # from the first to the last of them
    cpu_milli_s: Count  # the sum of millicores over the seconds
    p95_milli: CpuMilli
    memory_peak_mib: Mib | None = None  # None: not known
    position: Count = 0  # of the ledger


class ResizeOrdered(PlanStep, frozen=True, kw_only=True):
    """The requests of a pod are to change, with every input of the change: it can be computed
    again. `original` are the requests before the first order, which come back."""

    TYPE: ClassVar[str] = "plan.resize-ordered"
    node: Name
    uid: Uid
    pod: Holder
    change: Change
    original: Requests
    before: Requests
    after: Requests
    use: UseBasis | None = None  # of lower and raise
    cpu_wait: ShareMilli | None = None  # in thousandths of the time since the last look
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class Resized(PlanStep, frozen=True, kw_only=True):
    """The API server has accepted the order. What the kubelet sets aside follows as `pod.bound`."""

    TYPE: ClassVar[str] = "plan.resized"
    node: Name
    uid: Uid
    pod: Holder
    change: Change
    after: Requests

    @property
    def key(self) -> str:
        return self.node


class ResizeRefused(PlanStep, frozen=True, kw_only=True):
    """A pod that consented keeps its requests. Published when the reason changes."""

    TYPE: ClassVar[str] = "plan.resize-refused"
    node: Name
    uid: Uid
    pod: Holder
    reason: Word  # one word for each kind of reason
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node
