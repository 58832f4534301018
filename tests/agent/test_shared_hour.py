"""An hour of a node whose eight cards are shared in time, from the agent's meters to the ledger."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

import host_trees
from bus_kit import bound, card, hardware, node_seen
from bus_kit.clock import NOON
from joulie_agent.measure.node_power import node_power
from joulie_agent.measure.pods import Devices, Energy
from joulie_agent.pods import PodMeter
from joulie_agent.probes import CardProbe, CounterProbe, Probe
from joulie_agent.sources.host import Host
from joulie_bus.events import Fact, PodFinished
from joulie_bus.metering.meters import Meter, Part
from joulie_bus.metering.reporter import Moment, Reporter
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.report import EnergyReport, report_of

HOUR_S, CPUS, NS = 3600, 64, 10**9
IDLE_CPU_W, IDLE_CARD_W, WRAPS_UJ = 200.0, 73.0, 262_143_328_850
PACKAGE = Meter("rapl", "package-0", Part.PACKAGE)
LOST = 0.01  # of the readings


class Pod(NamedTuple):
    uid: str
    cores: float
    card: str
    card_w: float  # that it adds to its card
    from_s: int
    to_s: int

    def runs(self, at_s: int) -> bool:
        return self.from_s <= at_s < self.to_s


def pods() -> list[Pod]:
    """Two or three on each card, some of them for a part of the hour."""
    draw, found = random.Random(7), list[Pod]()
    for number in range(20):
        uid = f"{number:08x}-1111-4222-8333-0123456789ab"
        begin = draw.choice([5, 5, 600, 1200])
        end = draw.choice([HOUR_S, HOUR_S, begin + 1500])
        where = f"GPU-{number % 8}"
        found.append(Pod(uid, draw.uniform(0.2, 4), where, draw.uniform(40, 160), begin, end))
    return found


class Node:
    """The true node, its meters as the agent reads them, and the ledger of what it publishes."""

    def __init__(self, root: Path) -> None:
        self.pods, self.root, self.now_s = pods(), root, 0
        self.true_uj = {PACKAGE: 0.0} | {self.card(number): 0.0 for number in range(8)}
        self.true_pod_uj = {pod.uid: 0.0 for pod in self.pods}
        self.watts, self.used_us = (
            dict.fromkeys(self.true_uj, 0.0),
            dict.fromkeys(self.true_pod_uj, 0.0),
        )
        self.busy_ticks = 0.0
        self.noise = random.Random(8)
        self.package = CounterProbe(
            PACKAGE, lambda: round(self.true_uj[PACKAGE]) % WRAPS_UJ, WRAPS_UJ
        )
        self.cards = [self.probe(number) for number in range(8)]
        self.probes: list[Probe] = [self.package, *self.cards]
        self.pod_meter, self.reporter = PodMeter(Host(root)), Reporter("n1")
        self.ledger = Ledger()
        self.ledger.fold((fact, NOON) for fact in self.described())
        self.first_uj = 0.0

    def card(self, number: int) -> Meter:
        return Meter("nvml", f"GPU-{number}", Part.CARD)

    def probe(self, number: int) -> CardProbe:
        meter = self.card(number)
        return CardProbe(
            meter,
            lambda: self.watts[meter] * (1 + self.noise.gauss(0, 0.01)),
            lambda: round(self.true_uj[meter]),
            offset_s=number,
        )

    def described(self) -> list[Fact]:
        cards: list[Fact] = [card(f"GPU-{number}", "n1") for number in range(8)]
        return [node_seen("n1", gpus=8), hardware("n1", gpus=8), *cards]

    def second(self) -> None:
        self.now_s += 1
        running = [pod for pod in self.pods if pod.runs(self.now_s)]
        busy = min(1.0, sum(pod.cores for pod in running) / CPUS)
        self.watts = {PACKAGE: IDLE_CPU_W * (1 + busy)}
        for number in range(8):
            on_it = [pod for pod in running if pod.card == f"GPU-{number}"]
            self.watts[self.card(number)] = IDLE_CARD_W + sum(pod.card_w for pod in on_it)
        for meter, watts in self.watts.items():
            self.true_uj[meter] += watts * 1e6
        for pod in running:
            self.used_us[pod.uid] += pod.cores * 1e6
            self.true_pod_uj[pod.uid] += (IDLE_CPU_W * pod.cores / CPUS + pod.card_w) * 1e6
        self.busy_ticks += busy * CPUS * 100
        self.ledger.fold((fact, NOON + self.now_s * NS) for fact in self.changes())
        self.measure(running)

    def changes(self) -> list[Fact]:
        begun = [bound(pod.uid, "n1") for pod in self.pods if pod.from_s == self.now_s]
        ended = [PodFinished(uid=pod.uid) for pod in self.pods if pod.to_s == self.now_s]
        return [*begun, *ended]

    def measure(self, running: list[Pod]) -> None:
        at_s = float(self.now_s)
        readings = {
            probe.meter: power_mw
            for probe in self.probes
            if (power_mw := probe.power_mw(at_s)) is not None
        }
        totals = {probe.meter: probe.energy.total_uj for probe in self.probes}
        power = node_power(readings)
        if power is None or PACKAGE not in readings:
            return
        if self.now_s % 10 == 0:
            self.sample_pods(running, totals)
        reading = self.reporter.observe(
            Moment(at_s, self.now_s), power, totals, is_due=self.now_s == HOUR_S
        )
        if reading is None:
            return
        if not self.first_uj:
            self.first_uj = sum(self.true_uj.values())
        if self.now_s % 60 < 10:
            reading = replace(reading, pod_uj=self.pod_meter.totals_uj())
        if self.noise.random() >= LOST or self.now_s == HOUR_S:
            self.ledger.fold([(reading, NOON + self.now_s * NS + 5_000_000)])

    def sample_pods(self, running: list[Pod], totals: dict[Meter, int]) -> None:
        idle = CPUS * 100 * self.now_s - round(self.busy_ticks)
        files: dict[str, str | int] = {
            "proc/stat": f"cpu {round(self.busy_ticks)} 0 0 {idle} 0 0 0 0"
        }
        for pod in running:
            folder = f"sys/fs/cgroup/kubepods/burstable/pod{pod.uid}"
            files[f"{folder}/cpu.stat"] = f"usage_usec {round(self.used_us[pod.uid])}"
        host_trees.write(self.root, files)
        holders: dict[str, list[str]] = {}
        for pod in running:
            holders.setdefault(pod.card, []).append(pod.uid)
        cards = {meter.component: uj for meter, uj in totals.items() if meter.part is Part.CARD}
        energy = Energy(sum(totals.values()), cards, frozenset(totals))
        self.pod_meter.observe(float(self.now_s), energy, Devices(holders, 700_000))

    def report(self) -> EnergyReport:
        self.ledger.end()
        hours = [each for each in self.ledger.closed if each.grain == "hour"]
        return report_of(hours, "pod")


def test_pods_and_idle_are_the_meter_within_half_a_percent(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for _ in range(HOUR_S):
        node.second()
    found, true_uj = node.report(), sum(node.true_uj.values()) - node.first_uj

    shares = sum(share.pods_uj + share.idle_uj for share in found.by.values())
    assert shares == found.meter_uj
    assert found.meter_uj == pytest.approx(true_uj, rel=0.005)
    used = sum(node.true_pod_uj.values())
    print(f"meter {found.meter_uj / true_uj - 1:+.4%}, pods {found.pods_uj / used - 1:+.2%}")
    errors = []
    for pod in node.pods:
        share = found.by[f"team/{pod.uid}"].pods_uj / node.true_pod_uj[pod.uid] - 1
        errors.append(abs(share))
    print(f"each pod: median {sorted(errors)[10]:.1%}, most {max(errors):.1%}")
    assert found.pods_uj == pytest.approx(used, rel=0.01)
    assert sorted(errors)[len(errors) // 2] < 0.3
