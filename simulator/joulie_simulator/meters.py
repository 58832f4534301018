"""What the agents of simulated nodes publish: in the agent's own encoding, and at its pace.

Pods are metered by the agent's own counters, from what it would read on its node. Powers have the
noise of a sensor; counters have the energy that the node has used, by the simulation itself.
Counters count real time, as all readings do.
"""

import random
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from joulie_agent.measure.pods import (
    PUBLISHED_EACH_S,
    READ_EACH_S,
    Devices,
    Energy,
    PodCounters,
    Sample,
)
from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.pace import USUAL, Pace
from joulie_bus.metering.reporter import Moment, Reporter
from joulie_simulator.engine import Sampled

PROVIDER = "simulator"
WHOLE = Meter(PROVIDER, "node", Part.CHASSIS)
NS_PER_S = 10**9


class PodMeter:
    """The pods of one simulated node, as its agent counts them."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._counters = PodCounters()
        self._read_s = self._published_s = -PUBLISHED_EACH_S

    def observe(self, seen: Sampled, at_s: float, totals: Mapping[Meter, int]) -> None:
        if at_s - self._read_s < READ_EACH_S:
            return
        self._read_s = at_s
        cards = {meter.component: uj for meter, uj in totals.items() if meter.part is Part.CARD}
        energy = Energy(totals[WHOLE], cards, frozenset({WHOLE}))
        pods = seen.pods
        pod_ns = {uid: self._ns(core_s) for uid, core_s in pods.pod_core_s.items()}
        total_ns = round(pods.cores * at_s * NS_PER_S)
        sample = Sample(at_s, energy, self._ns(pods.core_s), total_ns, pod_ns)
        self._counters.observe(sample, Devices(pods.holders, pods.card_max_mw))

    def due(self, at_s: float, *, is_due: bool) -> Mapping[str, int]:
        """The counters to publish now; empty if it is not time."""
        if not is_due and at_s - self._published_s < PUBLISHED_EACH_S:
            return {}
        self._published_s = at_s
        return self._counters.totals_uj()

    def _ns(self, simulated_s: float) -> int:
        return round(simulated_s / self._speed * NS_PER_S)


class Meters:
    """The agents of all nodes. A share of their readings is lost."""

    def __init__(self, seed: int, speed: float, lost: float = 0.0, pace: Pace = USUAL) -> None:
        self._noise = random.Random(seed + 4)
        self._speed = speed
        self._lost = lost
        self._pace = pace
        self._reporters: dict[str, Reporter] = {}
        self._pods: dict[str, PodMeter] = {}

    def readings(
        self, sampled: Iterable[Sampled], at: Moment, *, are_due: bool = False
    ) -> list[TelemetrySampled]:
        """With `are_due`, of all these nodes, whatever the pace, and none is lost."""
        found: list[TelemetrySampled] = []
        for each in sampled:
            reading = self._reading(each, at, is_due=are_due)
            if reading is not None and (are_due or self._noise.random() >= self._lost):
                found.append(reading)
        return found

    def _reading(self, seen: Sampled, at: Moment, *, is_due: bool) -> TelemetrySampled | None:
        reporter = self._reporters.get(seen.node)
        if reporter is None:
            reporter = self._reporters[seen.node] = Reporter(seen.node, self._pace)
            self._pods[seen.node] = PodMeter(self._speed)
        pods = self._pods[seen.node]
        totals = {Meter(PROVIDER, uuid, Part.CARD): self._uj(j) for uuid, j in seen.card_j.items()}
        totals[WHOLE] = self._uj(seen.energy_j)
        power = NodePower(seen.power_mw, "node", PROVIDER, seen.card_mw, (WHOLE,))
        pods.observe(seen, at.at_s, totals)
        reading = reporter.observe(at, power, totals, is_due=is_due)
        if reading is None or not (metered := pods.due(at.at_s, is_due=is_due)):
            return reading
        return replace(reading, pod_uj=dict(metered))

    def _uj(self, simulated_j: float) -> int:
        return round(simulated_j / self._speed * 1e6)
