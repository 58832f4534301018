"""A fleet of nodes in columns: allocations and power of each node."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from joulie_projections.hardware.card_power import CardPower
from joulie_simulator.energy.jobs import Bools, Floats, Ints, Job
from joulie_simulator.hardware.shapes import H100_W

CPU_NODE_CORES, CPU_NODE_PEAK_W = 96, 700.0
GPU_NODE_CORES, GPU_NODE_CPU_PEAK_W, GPU_NODE_CARDS = 128, 500.0, 8
CARD_PEAK_W = 700.0
CPU_COEFFICIENT = 0.7  # of the CPU's peak, at full use of all cores
CARD_COEFFICIENT = {True: 0.85, False: 0.65}  # of a card's peak, by class performance
WORK_W_PER_CORE = (
    5.1  # the dynamic watts of a core on a CPU node: the unit in which work is counted
)


class Asleep(NamedTuple):
    """Power of a sleeping node."""

    cpu_node_w: float
    gpu_node_w: float


# Assumed: a management controller, network cards that can wake the node, and standby losses.
ASLEEP = Asleep(15.0, 80.0)


class IdleModel(NamedTuple):
    """Power of a node apart from the dynamic watts of its jobs."""

    name: str
    empty_cpu_node_w: float
    busy_cpu_node_w: float
    empty_gpu_node_w: float  # chassis and CPUs, without its cards
    busy_gpu_node_w: float
    idle_card_w: float
    cpu_dynamic: float  # share of a CPU node's dynamic range that jobs can use
    curve: CardPower | None = None  # of the cards, which then draw by it and not by a line


# The published experiment: 5 % of the CPU's peak when empty, 10 % when anything runs.
PEER = IdleModel("peer", 35.0, 70.0, 25.0, 50.0, 100.0, CPU_COEFFICIENT)
# Floors from AcmeTrace's power readings (Seren cluster, CC BY 4.0): CPU servers draw about half of
# their peak when idle, 8-GPU servers about a fifth, an idle A100 63 to 70 W.
MEASURED = IdleModel("measured", 350.0, 350.0, 840.0, 840.0, 70.0, 0.5)
# Half of these floors, with the same peak of a CPU node; cards as above.
QUARTER = IdleModel("quarter", 175.0, 175.0, 420.0, 420.0, 70.0, 0.75)
# Cards by the curve of a measured H100, chassis and CPUs as measured.
CURVED = MEASURED._replace(name="curved", idle_card_w=H100_W[0], curve=CardPower.of(H100_W))


# Shares of the power of an older node: of a newer CPU node, and of the chassis of a newer GPU node.
NEWER_CPU_NODE, NEWER_CHASSIS = 0.6, 0.7


class Fleet:
    """CPU nodes first; ties between nodes go to the lowest index.

    A mixed fleet has two generations: every second node, in a random order, is a newer one.
    """

    def __init__(
        self,
        cpu_nodes: int,
        gpu_nodes: int,
        idle: IdleModel,
        asleep: Asleep = ASLEEP,
        *,
        mixed: bool = False,
    ) -> None:
        kinds = np.arange(cpu_nodes + gpu_nodes) >= cpu_nodes
        self.newer = _newer(cpu_nodes, gpu_nodes) if mixed else np.zeros(len(kinds), np.bool_)
        cpu_share = np.where(self.newer & ~kinds, NEWER_CPU_NODE, 1.0)
        idle_share = np.where(self.newer & kinds, NEWER_CHASSIS, cpu_share)
        self.idle = idle
        self.size = len(kinds)
        self.cores = np.where(kinds, GPU_NODE_CORES, CPU_NODE_CORES)
        self.cards = np.where(kinds, GPU_NODE_CARDS, 0)
        self.physical_cards: Ints = self.cards  # pods can request more than these, in units of them
        self.cpu_peak_w = np.where(kinds, GPU_NODE_CPU_PEAK_W, CPU_NODE_PEAK_W) * cpu_share
        self.peak_w = self.cpu_peak_w + self.cards * CARD_PEAK_W
        self.free_cores: Ints = self.cores.copy()
        self.free_cards: Ints = self.cards.copy()
        self.free_memory: Floats = np.full(self.size, np.inf)
        self.jobs = np.zeros(self.size, dtype=np.int64)
        self.dynamic_w: Floats = np.zeros(self.size)
        self.awake: Bools = np.ones(self.size, dtype=np.bool_)  # accepts jobs
        self.asleep: Bools = np.zeros(self.size, dtype=np.bool_)  # one that boots is neither
        self.waiting = 0  # jobs in the queue at the start of the minute
        self._empty_w = np.where(kinds, idle.empty_gpu_node_w, idle.empty_cpu_node_w) * idle_share
        self._busy_w = np.where(kinds, idle.busy_gpu_node_w, idle.busy_cpu_node_w) * idle_share
        self._asleep_w = np.where(kinds, asleep.gpu_node_w, asleep.cpu_node_w)
        self.idle_w: Floats = self._empty_w + self.cards * idle.idle_card_w
        self.core_w: Floats = self.cpu_peak_w * idle.cpu_dynamic / self.cores
        self.power_w: Floats = self.idle_w.copy()

    def fitting(self, job: Job) -> Bools:
        """The nodes that are awake and have room for the job."""
        fits: Bools = self.awake & (self.free_cores >= job.cores)
        if job.memory:
            fits &= self.free_memory >= job.memory
        if job.gpus:
            fits &= (self.free_cards >= job.gpus) & (self.physical_cards >= job.gpus)
        return fits

    def place(self, node: int, job: Job) -> None:
        self._change(node, job, 1)

    def release(self, node: int, job: Job) -> None:
        self._change(node, job, -1)
        if not self.jobs[node]:
            self.dynamic_w[node] = 0.0  # removes the rounding error after the last job

    def _change(self, node: int, job: Job, sign: int) -> None:
        self.free_cores[node] -= sign * job.cores
        self.free_cards[node] -= sign * job.gpus
        self.free_memory[node] -= sign * job.memory
        self.jobs[node] += sign
        self.dynamic_w[node] += sign * self.dynamic_of(node, job)

    def dynamic_of(self, node: int, job: Job) -> float:
        cpu = self.cpu_peak_w[node] * self.idle.cpu_dynamic * job.cores / self.cores[node]
        return float(cpu * job.cpu_use + self._cards_of(job))

    def _cards_of(self, job: Job) -> float:
        """All watts of the cards that the job holds."""
        curve = self.idle.curve
        if curve is None:
            return cards_w(job) * job.gpu_use
        busy = CARD_COEFFICIENT[job.performance] * job.gpu_use
        return job.gpus * (curve.idle_w + curve.added_w(busy)) if job.gpus else 0.0

    def update_power(self, node: int) -> None:
        base = self._busy_w[node] if self.jobs[node] else self._empty_w[node]
        idle_cards = self.free_cards[node] * self.idle.idle_card_w
        self.power_w[node] = base + self.dynamic_w[node] + idle_cards

    def set_asleep(self, nodes: Ints, *, asleep: bool) -> None:
        """The power of empty nodes; a node that wakes draws its idle power at once."""
        self.power_w[nodes] = (self._asleep_w if asleep else self.idle_w)[nodes]
        self.asleep[nodes] = asleep

    def idle_cards_w(self) -> float:
        """Watts of all free cards whose node is powered."""
        powered = self.power_w > self._asleep_w
        return float(self.free_cards[powered].sum() * self.idle.idle_card_w)

    def rated_cpu_w(self, node: int) -> float:
        """Of all sockets, as the agent of the node would report it; and so the next two."""
        return float(self.cpu_peak_w[node])

    def rated_card_w(self, _node: int) -> float:
        return CARD_PEAK_W

    def card_curve(self, _node: int) -> CardPower | None:
        return self.idle.curve

    def labels(self, _node: int) -> Mapping[str, str] | None:
        """Those of the node in the log, if there is one."""
        return None

    def marginal_w(self, job: Job) -> Floats:
        """The formula's estimate for each node, without knowledge of the job's utilisation."""
        return self.cpu_peak_w * CPU_COEFFICIENT * job.cores / self.cores + cards_w(job)


def _newer(cpu_nodes: int, gpu_nodes: int) -> Bools:
    draw = np.random.default_rng(1)
    halves = [draw.permutation(count) < count // 2 for count in (cpu_nodes, gpu_nodes)]
    return np.concatenate(halves)


def cards_w(job: Job) -> float:
    """Watts of the job's cards at full use."""
    return job.gpus * CARD_PEAK_W * CARD_COEFFICIENT[job.performance]


def work_w(job: Job) -> float:
    """Useful work per second of the job, in dynamic watts under ideal conditions."""
    return job.cores * job.cpu_use * WORK_W_PER_CORE + cards_w(job) * job.gpu_use
