"""State of the simulated cluster: the node, cards and progress of each job."""

from collections.abc import Iterable, Iterator, Sequence
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

    def __init__(self, job: Job, cards: tuple[int, ...], began_s: float) -> None:
        self.job = job
        self.cards = cards
        self.began_s = began_s
        self.left_s = job.seconds  # of work at full speed

    def speed(self, drawn: Draw, turns: Sequence[float]) -> float:
        """The speed of the slower of CPU and cards; `turns` is the part of the time that a pod gets
        of each card when it wants it."""
        speeds = (drawn.cards[at][1] if drawn.cards else drawn.gpu_speed for at in self.cards)
        of_cards = (speed * turns[at] for speed, at in zip(speeds, self.cards, strict=True))
        return min([drawn.cpu_speed, *of_cards])

    def core_s(self, now_s: float) -> float:
        """The processor time that it has used."""
        return self.job.cores * self.job.utilisation * (now_s - self.began_s)


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
        self._sharing = [0] * shape.gpus  # pods on each card
        self.energy_j = 0.0  # used since it was counted first
        self.card_j = [0.0] * shape.gpus
        self.core_s = 0.0  # processor time that was used
        self._counted_s: float | None = None
        self._ambient_c = 20.0
        self._since_s = 0.0
        self._turns = [1.0] * shape.gpus
        self._busy_cores = 0.0
        self._drawn = self._draw()

    @property
    def free_cards(self) -> list[int]:
        """Those without a pod."""
        return [at for at, pods in enumerate(self._sharing) if not pods]

    def take(self, job: Job, now_s: float) -> list[GpuSeen]:
        """Start the job; returns the cards it was given. Cards that are shared in time are given
        out as NVIDIA's device plugin does: the one with the fewest pods first."""
        self._work_until(now_s)
        by_pods = sorted(range(self.shape.gpus), key=self._sharing.__getitem__)
        cards = tuple(by_pods[: job.gpus])
        self.running[job.uid] = Running(job, cards, now_s)
        self._has_room.take(self._row, job)
        return self._changed(cards, 1)

    def release(self, uid: str, now_s: float) -> list[GpuSeen]:
        """Remove the job; returns the cards it frees."""
        self._work_until(now_s)
        done = self.running.pop(uid)
        self._has_room.give_back(self._row, done.job)
        return self._changed(done.cards, -1)

    def _changed(self, cards: Iterable[int], pods: int) -> list[GpuSeen]:
        """The cards as they are now with one pod more or less."""
        for at in cards:
            self._sharing[at] += pods
        self._drawn = self._draw()
        return [self._card(at) for at in cards]

    def _card(self, at: int) -> GpuSeen:
        on_it = [each for each in self.running.values() if at in each.cards]
        used_mb = sum(self.shape.used_mb(each.job.gpu_mb) for each in on_it)
        return self.shape.card(self.name, at, [each.job.uid for each in on_it], used_mb)

    def holders(self) -> dict[str, list[str]]:
        """The pods of each card in use, by their uids."""
        found: dict[str, list[str]] = {}
        for uid, running in self.running.items():
            for at in running.cards:
                found.setdefault(card_uuid(self.name, at), []).append(uid)
        return found

    def pod_core_s(self, now_s: float) -> dict[str, float]:
        return {uid: running.core_s(now_s) for uid, running in self.running.items()}

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
        self.core_s += self._busy_cores * passed_s
        for at, watts in enumerate(self._each_card()):
            self.card_j[at] += watts * passed_s

    def progress(self, now_s: float) -> Iterator[tuple[Job, float]]:
        """The running jobs, each with the seconds of its work that are done."""
        for running in self.running.values():
            since_s = (now_s - self._since_s) * running.speed(self._drawn, self._turns)
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
        return [min(1.0, wanted) for wanted in self._wanted()]

    def _wanted(self) -> list[float]:
        """The part of the time for which the pods of each card want it; above 1 they wait."""
        wanted = [0.0] * self.shape.gpus
        for running in self.running.values():
            for at in running.cards:
                wanted[at] += running.job.utilisation
        return wanted

    def first_end(self) -> EndForecast | None:
        """Forecast the first end under the current load; replaces older forecasts."""
        self.turn += 1
        ends = [
            (self._since_s + running.left_s / running.speed(self._drawn, self._turns), uid)
            for uid, running in self.running.items()
        ]
        if not ends:
            return None
        at, uid = min(ends)
        return EndForecast(at, self.name, uid, self.turn)

    def _work_until(self, now_s: float) -> None:
        self.count(now_s)
        for running in self.running.values():
            running.left_s -= (now_s - self._since_s) * running.speed(self._drawn, self._turns)
        self._since_s = now_s

    def _draw(self) -> Draw:
        jobs = [running.job for running in self.running.values()]
        cores = sum(job.cores * job.utilisation for job in jobs)
        self._busy_cores = min(cores, float(self.shape.cores))
        self._turns = [1 / max(1.0, wanted) for wanted in self._wanted()]
        use = self._use()
        load = Load(
            cores,
            tuple(each for each in use if each),
            tuple(use) if self.caps.each else (),
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
