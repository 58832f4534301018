"""What the agents of simulated nodes publish: in the agent's own encoding, and at its pace.

Powers have the noise of a sensor; counters have the energy that the node has used, by the
simulation itself. Counters count real time, as all readings do.
"""

import random
from collections.abc import Iterable

from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.pace import USUAL, Pace
from joulie_bus.metering.reporter import Moment, Reporter
from joulie_simulator.engine import Sampled

PROVIDER = "simulator"
WHOLE = Meter(PROVIDER, "node", Part.CHASSIS)


class Meters:
    """The agents of all nodes. A share of their readings is lost."""

    def __init__(self, seed: int, speed: float, lost: float = 0.0, pace: Pace = USUAL) -> None:
        self._noise = random.Random(seed + 4)
        self._speed = speed
        self._lost = lost
        self._pace = pace
        self._reporters: dict[str, Reporter] = {}

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
        totals = {Meter(PROVIDER, uuid, Part.CARD): self._uj(j) for uuid, j in seen.card_j.items()}
        totals[WHOLE] = self._uj(seen.energy_j)
        power = NodePower(seen.power_mw, "node", PROVIDER, seen.card_mw, (WHOLE,))
        return reporter.observe(at, power, totals, is_due=is_due)

    def _uj(self, simulated_j: float) -> int:
        return round(simulated_j / self._speed * 1e6)
