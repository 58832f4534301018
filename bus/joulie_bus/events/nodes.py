"""Facts about nodes: what Kubernetes shows, and what the hardware is."""

from typing import ClassVar, Literal

import msgspec

from joulie_bus.events.base import Observation
from joulie_bus.events.bounds import (
    Bytes,
    CardCount,
    Count,
    CpuMilli,
    Labels,
    Milliwatts,
    Name,
    Uid,
    Word,
)

HardwareSource = Literal["resource", "agent", "labels"]


class NodeSeen(Observation, frozen=True, kw_only=True):
    """A node as Kubernetes shows it. `labels` holds only the labels that Joulie reads."""

    TYPE: ClassVar[str] = "node.seen"
    TOKEN: ClassVar[str] = "node"
    REPLACES: ClassVar[str] = "node"
    node: Name
    uid: Uid
    labels: Labels = {}
    ready: bool = True
    schedulable: bool = True
    cpu_milli: CpuMilli = 0
    memory_bytes: Bytes = 0
    gpus: CardCount = 0
    gpu_units: CardCount = 0  # requestable units, each less than a card; 0: pods request cards
    gpu_vendor: Word = ""  # from the name of the resource

    @property
    def key(self) -> str:
        return self.node


class NodeGone(Observation, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "node.gone"
    TOKEN: ClassVar[str] = "node"
    REPLACES: ClassVar[str] = "node"
    node: Name

    @property
    def key(self) -> str:
        return self.node


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a catalog knows about a node's models and the node does not report; 0: not known.

    A struct of its own, because an event with more than 15 fields is encoded differently, even an
    event that has none of the new ones.
    """

    cores_per_socket: Count = 0
    cpu_cap_mw_per_socket: Milliwatts = 0  # the highest cap that the vendor allows
    gpu_tflops: Count = 0  # of one card, FP16 without sparsity
    # Of one card, as measured: without a process, and with one that works for 0, 10, 25, 50, 75 and
    # 100 % of the time. Empty: no card of the model was measured.
    gpu_curve_mw: tuple[Milliwatts, ...] = ()


class HardwareDiscovered(Observation, frozen=True, kw_only=True, gc=False):
    """The maximum power of a node. Figures that no source reports come from the catalog."""

    TYPE: ClassVar[str] = "hardware.discovered"
    TOKEN: ClassVar[str] = "hardware"
    REPLACES: ClassVar[str] = "hardware"
    node: Name
    cpu_model: Word
    cpu_sockets: CardCount
    cpu_cores: CardCount
    cpu_max_mw_per_socket: Milliwatts
    gpu_model: Word = ""
    gpu_count: CardCount = 0
    gpu_max_mw: Milliwatts = 0
    memory_bytes: Bytes = 0
    source: HardwareSource = "resource"
    cpu_min_mw_per_socket: Milliwatts = 0  # the lowest cap that it accepts; 0: unknown
    gpu_min_mw: Milliwatts = 0
    gpu_by_catalog: bool = False  # the card's watts come from the catalog; a setting overrides them
    gpu_vendor: str = ""  # nvidia, amd or intel; "" for any other vendor or none
    figures: ModelFigures = ModelFigures()

    @property
    def key(self) -> str:
        return self.node
