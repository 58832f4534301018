"""Pods and nodes as the ledger knows them, and the rule that shares energy out.

Energy above idle is shared by the power of each pod as the agent has metered it, else by the power
that it asks for: its cores and cards at the rated power of the node. Idle energy is shared by the
part of the node that each pod occupies; the part that no pod occupies belongs to no pod.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from joulie_bus.events import HardwareDiscovered, NodeSeen, PodAsk
from joulie_projections.hardware.card_power import CardPower
from joulie_projections.hardware.guesses import guessed_cpu_max_w, guessed_gpu_max_w
from joulie_projections.pods.load import DEFAULT_CPU_MILLI

WHOLE_NODE = 1_000_000  # parts of a node
CPU_PERMILLE = 700  # of rated power, as `twin.power.Coefficients`
GPU_PERMILLE = {"standard": 650, "performance": 850}
MOST_EARLIER = 8  # resizes of a pod between two readings of its node; those before count as later


class PodEntry(msgspec.Struct, array_like=True):
    """A pod that is or was bound. Its energy is that of the running hour."""

    uid: str
    namespace: str
    name: str
    workload: str
    node: str
    cpu_milli: int
    gpu_milli: int
    start_ms: int
    end_ms: int = 0  # 0 while it runs
    gone: bool = False
    pods_uj: int = 0
    idle_uj: int = 0
    worth: list[int] = []  # as `meters.WORTH`; empty while nothing is known
    cards: tuple[str, ...] = ()  # in its Binding
    # Of the agent's counter: when it began, and its last value with the time; the mean power since
    # the value before. -1: it is not metered.
    counted_from: int = 0
    counted_uj: int = 0
    counted_ms: int = 0
    metered_mw: int = -1
    # Since the newest reading of its node: until when it asked for how many other cores.
    earlier: list[tuple[int, int]] = []

    @classmethod
    def of(cls, pod: PodAsk, node: str, at_ms: int) -> "PodEntry":
        texts = (pod.uid, pod.namespace, pod.name, pod.workload, node)
        cpu_milli = cores_asked(pod, pod.workload)
        return cls(*texts, cpu_milli, pod.gpu_milli, at_ms, cards=pod.gpu.given)

    def resize(self, cpu_milli: int, at_ms: int) -> None:
        """The time before this counts by the cores that it asked for then."""
        self.earlier = [*self.earlier, (at_ms, self.cpu_milli)][-MOST_EARLIER:]
        self.cpu_milli = cpu_milli

    def asking(self, cpu_milli: int) -> "PodEntry":
        """The pod as it was when it asked for these cores."""
        return self if cpu_milli == self.cpu_milli else replace(self, cpu_milli=cpu_milli)

    def shared_until(self, ms: int) -> None:
        self.earlier = [each for each in self.earlier if each[0] > ms]

    def count(self, counted_from: int, at_ms: int, uj: int) -> None:
        """A counter that began at another time, or that fell, tells nothing yet."""
        risen_uj, passed_ms = uj - self.counted_uj, at_ms - self.counted_ms
        if counted_from == self.counted_from and risen_uj >= 0 and passed_ms > 0:
            self.metered_mw = risen_uj // passed_ms
        self.counted_from, self.counted_uj, self.counted_ms = counted_from, uj, at_ms

    def add_worth(self, place: int, amount: int) -> None:
        self.worth = self.worth or [0, 0, 0, 0]
        self.worth[place] += amount


def cores_asked(pod: PodAsk, workload: str) -> int:
    return pod.cpu_milli or DEFAULT_CPU_MILLI[workload]


class Capacity(msgspec.Struct, frozen=True, array_like=True):
    """What the rule needs to know about a node; 0: unknown."""

    cpu_milli: int = 0
    gpus: int = 0
    cpu_max_mw: int = 0  # of all sockets
    gpu_max_mw: int = 0  # of one card
    source: str = ""
    # Of the cards as a whole: how many there are, how many units pods may request
    # if these are less than a card, and the measured curve of one, as in `ModelFigures`.
    cards: int = 0
    units: int = 0
    gpu_curve_mw: tuple[int, ...] = ()

    @property
    def requestable(self) -> int:
        """What pods request by number: cards, or units of cards."""
        return self.units or self.gpus

    @property
    def curve(self) -> CardPower | None:
        """Of one card. A curve is of a whole card: a slice or a share has none."""
        shared = self.requestable > (self.cards or self.gpus)
        return None if shared else CardPower.measured(self.gpu_curve_mw)


def seen_capacity(known: Capacity, seen: NodeSeen) -> Capacity:
    return replace(known, cpu_milli=seen.cpu_milli, gpus=seen.gpus, units=seen.gpu_units)


def discovered_capacity(known: Capacity, found: HardwareDiscovered) -> Capacity:
    """Hardware from labels never replaces a discovery."""
    if found.source == "labels" and known.source not in ("", "labels"):
        return known
    return replace(
        known,
        cpu_max_mw=found.cpu_sockets * found.cpu_max_mw_per_socket,
        gpu_max_mw=found.gpu_max_mw,
        source=found.source,
        cards=found.gpu_count,
        gpu_curve_mw=found.figures.gpu_curve_mw,
    )


class NodeEntry(msgspec.Struct, array_like=True):
    name: str
    row: int
    present: bool = False
    plan: str = ""
    capacity: Capacity = Capacity()
    pods: dict[str, PodEntry] = {}
    ended: list[PodEntry] = []  # since its newest reading
    zone: str = ""
    usable: bool = False  # ready and schedulable, as last seen


class AskedPower(NamedTuple):
    """In milliwatts."""

    cpu: int
    gpu: int

    @property
    def whole(self) -> int:
        return max(1, self.cpu + self.gpu)


def weight_of(pod: PodEntry, node: Capacity) -> int:
    """The power of a pod above idle, in milliwatts: as it is metered, else as it asks for; at least
    1."""
    return max(1, pod.metered_mw) if pod.metered_mw >= 0 else asked_power(pod, node).whole


def asked_power(pod: PodEntry, node: Capacity) -> AskedPower:
    cores_milli = node.cpu_milli or 1000
    cpu_max_mw = node.cpu_max_mw or int(guessed_cpu_max_w(cores_milli / 1000) * 1000)
    gpu_max_mw = node.gpu_max_mw or int(guessed_gpu_max_w("") * 1000)
    cpu = pod.cpu_milli * cpu_max_mw * CPU_PERMILLE // (cores_milli * 1000)
    unit_mw = gpu_max_mw * node.gpus // node.requestable if node.units else gpu_max_mw
    gpu = pod.gpu_milli * unit_mw * GPU_PERMILLE[pod.workload] // 1_000_000
    return AskedPower(cpu, gpu)


def occupied_by(pod: PodEntry, node: Capacity) -> int:
    """The part of the node that the pod occupies: of its cores or of its cards, the larger one."""
    cpu = pod.cpu_milli * WHOLE_NODE // node.cpu_milli if node.cpu_milli else 0
    gpu = pod.gpu_milli * WHOLE_NODE // (node.requestable * 1000) if node.gpus else 0
    return min(WHOLE_NODE, max(cpu, gpu))


class Stay(NamedTuple):
    """A pod and how long it ran in a window, or in the part of it in which it asked for the same.

    `asked` is the pod as it was then: energy is shared out by that, and belongs to `pod`.
    """

    pod: PodEntry
    ms: int
    asked: PodEntry


def stays_of(pod: PodEntry, from_ms: int, to_ms: int) -> list[Stay]:
    """In this window, in the order of time."""
    begin, end = max(pod.start_ms, from_ms), min(pod.end_ms or to_ms, to_ms)
    if not pod.earlier:  # the common case
        return [Stay(pod, end - begin, pod)] if end > begin else []
    found: list[Stay] = []
    for until_ms, cpu_milli in (*pod.earlier, (end, pod.cpu_milli)):
        upto = min(until_ms, end)
        if upto > begin:
            found.append(Stay(pod, upto - begin, pod.asking(cpu_milli)))
            begin = upto
    return found


def share_out(
    node: Capacity,
    stays: Sequence[Stay],
    own: Sequence[int],
    idle: Sequence[int],
    window_ms: int,
) -> list[tuple[Stay, int]]:
    """Adds the energy of a window, and its worth, to its pods; `own` is shared out completely.
    Returns the part of it that each pod got.

    The order of the pods decides who gets the remainders of the divisions, so it is that of uids.
    """
    own_uj, idle_uj = own[0], idle[0]
    stays = sorted(stays, key=_uid)
    weights = [weight_of(stay.asked, node) * stay.ms for stay in stays]
    parts = [occupied_by(stay.asked, node) * stay.ms for stay in stays]
    whole, occupied = sum(weights), max(sum(parts), WHOLE_NODE * window_ms)
    counted = given = 0
    shared: list[tuple[Stay, int]] = []
    for stay, weight, part in zip(stays, weights, parts, strict=True):
        counted += weight
        upto = own_uj * counted // whole
        stay.pod.pods_uj += upto - given
        shared.append((stay, upto - given))
        stay.pod.idle_uj += idle_uj * part // occupied
        given = upto
    if any(own[1:]) or any(idle[1:]):
        _share_worth(stays, (own, weights, whole), (idle, parts, occupied))
    return shared


Split = tuple[Sequence[int], Sequence[int], int]  # amounts, the part of each pod, the whole


def _share_worth(stays: Sequence[Stay], own: Split, idle: Split) -> None:
    """Shares out cost and carbon as the energy is: that above idle completely."""
    for place in range(1, len(own[0])):
        counted = given = 0
        for stay, weight, part in zip(stays, own[1], idle[1], strict=True):
            counted += weight
            upto = own[0][place] * counted // own[2]
            stay.pod.add_worth(place - 1, upto - given + idle[0][place] * part // idle[2])
            given = upto


def _uid(stay: Stay) -> str:
    return stay.pod.uid
