"""Hardware of the simulated nodes; figures from the vendors' public data sheets.

Models have the names of the hardware catalog. Idle watts, as measured on the AcmeTrace cluster
(CC BY 4.0): CPU servers draw about half of their peak, an A100 about 65 W of 400 W.
"""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_bus.events import GpuSeen, HardwareDiscovered, ModelFigures
from joulie_projections.hardware.card_power import CardPower
from joulie_projections.hardware.models import vendor_of
from joulie_projections.state.cards import UNKNOWN_HOLDER

GIB = 2**30


# Of a measured card of 700 W, as in the catalog: without a process, and with one that works for 0,
# 10, 25, 50, 75 and 100 % of the time.
H100_W = (73.0, 125.0, 199.0, 307.0, 483.0, 629.0, 692.0)


class CardShape(NamedTuple):
    """The GPUs of one node, all of one model."""

    model: str
    number: int
    max_w: int
    min_w: int  # the lowest cap that they accept
    idle_w: int
    memory_mb: int
    is_linked: bool  # NVLink between all of them
    tflops: int = 0  # FP16, without sparsity; 0: unknown
    power: CardPower | None = None  # as measured; None: by a line up to `max_w`
    replicas: int = 1  # pods that share one card in time, at most

    @property
    def figures(self) -> ModelFigures:
        curve = () if self.power is None else self.power.milliwatts
        return ModelFigures(gpu_tflops=self.tflops, gpu_curve_mw=curve)

    def added_w(self, busy: float) -> float:
        """Of one card above its idle power, with a job that works for this share of the time."""
        if self.power is not None:
            return self.power.added_w(busy)
        return (self.max_w - self.idle_w) * busy


class Machine(NamedTuple):
    """A node of a trace; all its cards are assumed to be of one model."""

    milli: int
    memory_mib: int
    gpus: int
    is_linked: bool = False  # NVLink between all of its cards; not part of any trace
    model: str = ""  # of its cards, as the trace names it


class Shape(NamedTuple):
    share: int  # nodes of this shape per 100
    prefix: str
    cpu_model: str
    sockets: int
    cores: int
    cpu_max_w: int  # per socket
    cpu_min_w: int
    idle_share: float  # share of the sockets' watts when idle
    memory_gib: int
    cards: CardShape | None = None

    @property
    def gpus(self) -> int:
        return self.cards.number if self.cards else 0

    @property
    def units(self) -> int:
        """What pods may request: the cards, or more where pods share them in time."""
        return self.cards.number * self.cards.replicas if self.cards else 0

    def discovered(self, node: str) -> HardwareDiscovered:
        cards = self.cards
        return HardwareDiscovered(
            node=node,
            cpu_model=self.cpu_model,
            cpu_sockets=self.sockets,
            cpu_cores=self.cores,
            cpu_max_mw_per_socket=self.cpu_max_w * 1000,
            cpu_min_mw_per_socket=self.cpu_min_w * 1000,
            gpu_model=cards.model if cards else "",
            gpu_count=self.gpus,
            gpu_max_mw=cards.max_w * 1000 if cards else 0,
            gpu_min_mw=cards.min_w * 1000 if cards else 0,
            memory_bytes=self.memory_gib * GIB,
            gpu_vendor=vendor_of(cards.model) if cards else "",
            figures=cards.figures if cards else ModelFigures(),
        )

    def used_mb(self, asked_mb: int) -> int:
        """The memory of one card that a pod has; without a request its part of the card."""
        return asked_mb or (self.cards.memory_mb // self.cards.replicas if self.cards else 0)

    def card(self, node: str, at: int, pods: Sequence[str] = (), used_mb: int = 0) -> GpuSeen:
        """One card, as reported by the agent of its node: that of one pod has an owner, that of
        several is in use."""
        assert self.cards is not None
        return GpuSeen(
            uuid=card_uuid(node, at),
            node=node,
            model=self.cards.model,
            total_mb=self.cards.memory_mb,
            allocated_mb=min(used_mb, self.cards.memory_mb),
            nvlink_group="0" if self.cards.is_linked else "",
            owner=pods[0] if len(pods) == 1 else "",
            holder=UNKNOWN_HOLDER if len(pods) > 1 else "",
            source="agent",
        )


H100 = CardShape("NVIDIA H100 SXM5", 8, 700, 200, 73, 81_559, True, 989, power=CardPower.of(H100_W))
A100 = CardShape("NVIDIA A100 SXM4 40GB", 8, 400, 100, 65, 40_960, True, 312)
L4 = CardShape("NVIDIA L4", 4, 72, 40, 16, 23_034, False, 121, replicas=4)

SHAPES = (
    Shape(45, "cpu-genoa", "AMD EPYC 9654", 2, 192, 360, 240, 0.45, 768),
    Shape(25, "cpu-milan", "AMD EPYC 7763", 2, 128, 280, 225, 0.5, 512),
    Shape(15, "gpu-h100", "Intel Xeon Platinum 8480+", 2, 112, 350, 175, 0.5, 2048, H100),
    Shape(10, "gpu-a100", "AMD EPYC 7742", 2, 128, 225, 165, 0.5, 1024, A100),
    Shape(5, "gpu-l4", "Intel Xeon Gold 6338", 1, 32, 205, 105, 0.5, 256, L4),
)


def card_uuid(node: str, at: int) -> str:
    return f"GPU-{node}-{at}"


def shape_of(number: int) -> Shape:
    """The hardware of the n-th node: a fixed mix, evenly spread for any size of the cluster."""
    place = number * 61 % 100  # 61 and 100 share no factor, so neighbours differ
    for shape in SHAPES:
        if place < shape.share:
            return shape
        place -= shape.share
    raise AssertionError("the shares of SHAPES add up to 100")
