"""State of the simulated cluster: the node, cards and progress of each job."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from joulie_bus.events import GpuSeen
from joulie_simulator.cluster.free_resources import FreeResources
from joulie_simulator.cluster.kube_arithmetic import plugin_scores
from joulie_simulator.hardware.physics import Caps, Draw, Load, card_watts, draw
from joulie_simulator.hardware.shapes import Shape, card_uuid, shape_of
from joulie_simulator.workload.workload import Job

ASLEEP_W = (15.0, 80.0)  # of a sleeping node without and with cards: assumptions
WAKE_S = 300.0  # from the order to wake up until the node takes pods: an assumption
NodePower = Literal["awake", "asleep", "waking"]


class Running:
    """A running job; caps slow it down, so its end changes with them."""

    def __init__(self, job: Job, cards: tuple[int, ...]) -> None:
        self.job = job
        self.cards = cards
        self.left_s = job.seconds  # of work at full speed

    def speed(self, drawn: Draw) -> float:
        """The speed of the slower of CPU and cards."""
        if drawn.cards:
            return min([drawn.cpu_speed, *(drawn.cards[at][1] for at in self.cards)])
        return min(drawn.cpu_speed, drawn.gpu_speed) if self.job.gpus else drawn.cpu_speed


class EndForecast(NamedTuple):
    """The forecast of the first job of a node to end."""

    at_s: float
    node: str
    uid: str
    turn: int  # only a node's newest forecast counts


class SimNode:
    def __init__(self, name: str, shape: Shape, room: FreeResources, row: int) -> None:
        self.name = name
        self.shape = shape
        self._has_room, self._row = room, row
        self.caps = Caps()
        self.profile = ""  # the value of its label
        self.power: NodePower = "awake"
        self.is_cordoned = False
        self.turn = 0
        self.running: dict[str, Running] = {}
        self.free_cards = list(range(shape.gpus))
        self.energy_j = 0.0  # used since it was counted first
        self.card_j = [0.0] * shape.gpus
        self._counted_s: float | None = None
        self._ambient_c = 20.0
        self._since_s = 0.0
        self._drawn = self._draw()

    def take(self, job: Job, now_s: float) -> list[GpuSeen]:
        """Start the job; returns the cards it was given."""
        self._work_until(now_s)
        cards, self.free_cards = tuple(self.free_cards[: job.gpus]), self.free_cards[job.gpus :]
        self.running[job.uid] = Running(job, cards)
        self._has_room.take(self._row, job)
        self._drawn = self._draw()
        used = job.gpu_mb or (self.shape.cards.memory_mb if self.shape.cards else 0)
        return [self.shape.card(self.name, at, job.uid, used) for at in cards]

    def release(self, uid: str, now_s: float) -> list[GpuSeen]:
        """Remove the job; returns the cards it frees."""
        self._work_until(now_s)
        done = self.running.pop(uid)
        self.free_cards = sorted([*self.free_cards, *done.cards])
        self._has_room.give_back(self._row, done.job)
        self._drawn = self._draw()
        return [self.shape.card(self.name, at) for at in done.cards]

    def cap(self, caps: Caps, now_s: float) -> bool:
        """Apply caps; returns whether they changed."""
        if caps == self.caps:
            return False
        self._work_until(now_s)
        self.caps = caps
        self._drawn = self._draw()
        return True

    def set_power(self, power: NodePower) -> None:
        """Without running jobs only. A waking node draws its idle power."""
        self.power = power
        self._has_room.set_awake(self._row, awake=power == "awake" and not self.is_cordoned)

    def cordon(self, *, is_cordoned: bool) -> bool:
        """Returns whether it changed."""
        if is_cordoned == self.is_cordoned:
            return False
        self.is_cordoned = is_cordoned
        self.set_power(self.power)
        return True

    def watts(self, ambient_c: float) -> float:
        if self.power != "asleep":
            self._ambient_c = ambient_c
            self._drawn = self._draw()
        return self._watts()

    def _watts(self) -> float:
        return ASLEEP_W[self.shape.gpus > 0] if self.power == "asleep" else self._drawn.watts

    def count(self, now_s: float) -> None:
        """Counts the energy up to now; before every change of the power."""
        passed_s = 0.0 if self._counted_s is None else now_s - self._counted_s
        self._counted_s = now_s
        self.energy_j += self._watts() * passed_s
        for at, watts in enumerate(self._each_card()):
            self.card_j[at] += watts * passed_s

    def progress(self, now_s: float) -> Iterator[tuple[Job, float]]:
        """The running jobs, each with the seconds of its work that are done."""
        for running in self.running.values():
            since_s = (now_s - self._since_s) * running.speed(self._drawn)
            yield running.job, running.job.seconds - max(0.0, running.left_s - since_s)

    def card_watts(self) -> dict[str, float]:
        """The power of each card as of the last `watts`; cards of a sleeping node are off."""
        return self._by_uuid(self._each_card())

    def card_energy_j(self) -> dict[str, float]:
        return self._by_uuid(self.card_j)

    def _by_uuid(self, each: Sequence[float]) -> dict[str, float]:
        return {card_uuid(self.name, at): value for at, value in enumerate(each)}

    def _each_card(self) -> list[float]:
        if not self.shape.gpus or self.power == "asleep":
            return [0.0] * self.shape.gpus
        return card_watts(self.shape, self._use(), self._drawn)

    def _use(self) -> list[float]:
        """The utilisation of each card."""
        use = [0.0] * self.shape.gpus
        for running in self.running.values():
            for at in running.cards:
                use[at] = running.job.utilisation
        return use

    def first_end(self) -> EndForecast | None:
        """Forecast the first end under the current load; replaces older forecasts."""
        self.turn += 1
        ends = [
            (self._since_s + running.left_s / running.speed(self._drawn), uid)
            for uid, running in self.running.items()
        ]
        if not ends:
            return None
        at, uid = min(ends)
        return EndForecast(at, self.name, uid, self.turn)

    def _work_until(self, now_s: float) -> None:
        self.count(now_s)
        for running in self.running.values():
            running.left_s -= (now_s - self._since_s) * running.speed(self._drawn)
        self._since_s = now_s

    def _draw(self) -> Draw:
        jobs = [running.job for running in self.running.values()]
        load = Load(
            sum(job.cores * job.utilisation for job in jobs),
            tuple(job.utilisation for job in jobs for _ in range(job.gpus)),
            tuple(self._use()) if self.caps.each else (),
        )
        return draw(self.shape, load, self.caps, self._ambient_c)


class SimCluster:
    def __init__(self, size: int, percentage: int = 0) -> None:
        """`percentage` is kube-scheduler's percentageOfNodesToScore; 0 is its default."""
        shapes = [shape_of(number) for number in range(size)]
        room = FreeResources(shapes)
        self.nodes = {
            name: SimNode(name, shape, room, number)
            for number, shape in enumerate(shapes)
            for name in [f"{shape.prefix}-{number:04d}"]
        }
        self._has_room = room
        self._names = list(self.nodes)
        self._rows = {name: row for row, name in enumerate(self._names)}
        self._wanted = sample_size(size, percentage)
        self._start = 0

    def has_room_for(self, job: Job) -> bool:
        return len(self._has_room.fitting(job)) > 0

    def sample(self, job: Job) -> list[str]:
        """The candidates that kube-scheduler would send: a round-robin sample of fitting nodes."""
        fitting = self._has_room.fitting(job)
        first = int(np.searchsorted(fitting, self._start))
        found: list[int] = np.roll(fitting, -first)[: self._wanted].tolist()
        if len(found) == self._wanted:
            self._start = (found[-1] + 1) % len(self._names)  # otherwise all nodes were checked
        return [self._names[row] for row in found]

    def plugin_scores(self, names: Sequence[str], job: Job) -> dict[str, int]:
        """The scores of kube-scheduler's own plugins for these nodes."""
        rows = [self._rows[name] for name in names]
        scores: list[int] = plugin_scores(*self._has_room.used(rows, job)).tolist()
        return dict(zip(names, scores, strict=True))


def sample_size(nodes: int, percentage: int = 0) -> int:
    """All of up to 100 nodes; otherwise `percentage` of them, and at least 100.

    The default percentage is 50 minus one per 125 nodes, at least 5.
    """
    if nodes < 100:
        return nodes
    return max(100, nodes * (percentage or max(5, 50 - nodes // 125)) // 100)
