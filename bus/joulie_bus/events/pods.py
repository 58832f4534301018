"""Facts about pods, what they request, and the default class of a namespace."""

from typing import ClassVar, Literal

import msgspec

from joulie_bus.events.base import Observation
from joulie_bus.events.bounds import (
    Bytes,
    CardCount,
    CardMb,
    CpuMilli,
    DeviceAsks,
    GivenCards,
    GpuMilli,
    Holder,
    Name,
    ShareMilli,
    Uid,
    Word,
)

WorkloadClass = Literal["performance", "standard"]
Placement = Literal["performance-only", "eco-only", "general"]
GpuTopology = Literal["", "nvlink"]


class GpuAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod requires of its cards. The defaults allow any card."""

    model: Word = ""  # as the pod spells it
    vram_mb: CardMb = 0  # of each card
    topology: GpuTopology = ""
    share_milli: ShareMilli = (
        0  # thousandths of one card that it shares with other pods; 0: whole cards
    )
    unreadable: Word = ""  # the annotation that cannot be parsed: this pod fits on no node
    given: GivenCards = ()  # the cards in its Binding


class DeviceAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod asks for by dynamic resource allocation: kube-scheduler gives it out."""

    # "claim/NAME" or "template/NAME", in its namespace; without those known to ask for no GPU.
    claims: DeviceAsks = ()
    milli: GpuMilli = 0  # the part of the pod's `gpu_milli` that is theirs


class Ties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod is a part of."""

    group: Holder = ""  # what it is placed together with, such as jobset/train; of its namespace
    replaced_by: Word = ""  # only in facts: the kind of controller that puts an equal pod elsewhere


class PodAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod requests, and by which rule. Facts and decisions hold the same value."""

    uid: Uid
    namespace: Name
    name: Name
    workload: WorkloadClass = "standard"
    placement: Placement = "general"
    rule: Word = "default"  # the classification rule that matched
    exempt: Word = ""  # why energy rules never refuse it: daemonset, mirror, critical
    cpu_milli: CpuMilli = 0
    memory_bytes: Bytes = 0
    gpu_milli: GpuMilli = 0  # thousandths of a card, because a MIG slice is a fraction
    gpu_cards: CardCount = 0  # whole cards
    gpu: GpuAsk = GpuAsk()
    team: Word = ""  # the team in its label
    ties: Ties = Ties()
    devices: DeviceAsk = DeviceAsk()
    # No further field: from 16 on, MessagePack writes another head, and rows of old logs change.

    @property
    def group(self) -> str:
        return self.ties.group

    @property
    def replaced_by(self) -> str:
        return self.ties.replaced_by


class PodPending(Observation, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pod.pending"
    TOKEN: ClassVar[str] = "pod"
    REPLACES: ClassVar[str] = "pod"
    pod: PodAsk

    @property
    def key(self) -> str:
        return self.pod.uid


class PodBound(Observation, frozen=True, kw_only=True):
    """Carries the whole pod: a watch that starts late sees the pod bound first."""

    TYPE: ClassVar[str] = "pod.bound"
    TOKEN: ClassVar[str] = "pod"
    REPLACES: ClassVar[str] = "pod"
    pod: PodAsk
    node: Name

    @property
    def key(self) -> str:
        return self.pod.uid


class PodFinished(Observation, frozen=True, kw_only=True):
    """Succeeded or Failed: the pod draws no power any more, though its object may remain."""

    TYPE: ClassVar[str] = "pod.finished"
    TOKEN: ClassVar[str] = "pod"
    REPLACES: ClassVar[str] = "pod"
    uid: Uid

    @property
    def key(self) -> str:
        return self.uid


class PodGone(Observation, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pod.gone"
    TOKEN: ClassVar[str] = "pod"
    REPLACES: ClassVar[str] = "pod"
    uid: Uid

    @property
    def key(self) -> str:
        return self.uid


class NamespaceSeen(Observation, frozen=True, kw_only=True):
    """The default class for pods of a namespace; absent if the namespace no longer sets one.

    Published only for namespaces that set a class, now or earlier.
    """

    TYPE: ClassVar[str] = "namespace.seen"
    TOKEN: ClassVar[str] = "namespace"
    REPLACES: ClassVar[str] = "namespace"
    namespace: Name
    workload: WorkloadClass | None = None

    @property
    def key(self) -> str:
        return self.namespace
