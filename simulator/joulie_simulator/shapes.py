"""Hardware that the simulated nodes are made of; figures from the makers' public data sheets."""

from typing import NamedTuple

from joulie_bus.events import HardwareDiscovered

GIB = 2**30


class Shape(NamedTuple):
    share: int  # of 100 nodes, how many are like this
    prefix: str
    cpu_model: str
    sockets: int
    cores: int
    cpu_tdp_w: int  # per socket
    memory_gib: int
    gpu_model: str = ""
    gpus: int = 0
    gpu_tdp_w: int = 0

    def discovered(self, node: str) -> HardwareDiscovered:
        return HardwareDiscovered(
            node=node,
            cpu_model=self.cpu_model,
            cpu_sockets=self.sockets,
            cpu_cores=self.cores,
            cpu_max_mw_per_socket=self.cpu_tdp_w * 1000,
            gpu_model=self.gpu_model,
            gpu_count=self.gpus,
            gpu_max_mw=self.gpu_tdp_w * 1000,
            memory_bytes=self.memory_gib * GIB,
        )


SHAPES = (
    Shape(45, "cpu-genoa", "AMD EPYC 9654", 2, 192, 360, 768),
    Shape(25, "cpu-milan", "AMD EPYC 7763", 2, 128, 280, 512),
    Shape(
        15, "gpu-h100", "Intel Xeon Platinum 8480+", 2, 112, 350, 2048, "NVIDIA H100 SXM5", 8, 700
    ),
    Shape(10, "gpu-a100", "AMD EPYC 7742", 2, 128, 225, 1024, "NVIDIA A100 SXM4 40GB", 8, 400),
    Shape(5, "gpu-l4", "Intel Xeon Gold 6338", 1, 32, 205, 256, "NVIDIA L4", 4, 72),
)


def shape_of(number: int) -> Shape:
    """Which hardware the n-th node has: a fixed mix, evenly spread whatever the cluster's size."""
    place = number * 61 % 100  # 61 and 100 share no factor, so neighbours differ
    for shape in SHAPES:
        if place < shape.share:
            return shape
        place -= shape.share
    raise AssertionError("the shares of SHAPES add up to 100")
