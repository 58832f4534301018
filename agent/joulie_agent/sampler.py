"""Samples the power of all meters of the node, again and again."""

import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from joulie_agent import probes
from joulie_agent.probes import Probe
from joulie_agent.sources import cpu_time
from joulie_agent.sources.cpu_time import CpuTime
from joulie_agent.sources.host import Host, Unreadable
from joulie_agent.sources.nvml import Library, opened
from joulie_bus.metering.meters import Meter
from joulie_bus.runtime.logging import get_logger

REDISCOVER_S = 60.0
LONGEST_MEAN_S = 5.0  # of the load of the processors
log = get_logger("agent")
Clock = Callable[[], float]


class Sampler:
    """The meters of this node. They are looked for again each minute, and when one is lost."""

    def __init__(self, host: Host, clock: Clock = time.monotonic) -> None:
        self.host = host
        self._clock = clock
        self._library: Library | None = None
        self._probes: dict[Meter, Probe] = {}
        self._discovered_s: float | None = None
        self._lost: set[Meter] = set()
        self._cpu_time: tuple[float, CpuTime | None] = (0.0, None)
        self.missing: AbstractSet[Meter] = frozenset()  # without a power in the last sample

    def close(self) -> None:
        if self._library is not None:
            self._library.close()
            self._library = None

    def sample(self) -> dict[Meter, int]:
        """The power of each meter that can be read now, in milliwatts."""
        at_s = self._clock()
        if self._discovered_s is None or at_s - self._discovered_s >= REDISCOVER_S:
            self._discover(at_s)
        readings = dict(self._powers(at_s))
        self.missing = (self._probes.keys() | self._lost) - readings.keys()
        return readings

    def totals_uj(self) -> dict[Meter, int]:
        """What each meter has counted since it was found."""
        return {meter: probe.energy.total_uj for meter, probe in self._probes.items()}

    def busy(self) -> float | None:
        """The share of processor time that was busy since the last call; None if unknown.

        Also None after a pause: the mean since then says nothing about now.
        """
        before_s, before = self._cpu_time
        at_s, after = self._clock(), self._cpu_time_now()
        self._cpu_time = at_s, after
        if before is None or after is None or after.total <= before.total:
            return None
        if at_s - before_s > LONGEST_MEAN_S:
            return None
        return min(1.0, max(0.0, (after.busy - before.busy) / (after.total - before.total)))

    def _cpu_time_now(self) -> CpuTime | None:
        try:
            return cpu_time.read(self.host)
        except Unreadable:
            return None

    def _powers(self, at_s: float) -> Iterator[tuple[Meter, int]]:
        for meter, probe in list(self._probes.items()):
            try:
                power = probe.power_mw(at_s)
            except Unreadable as error:
                probe.energy.lost()
                self._lose(meter, error)
                continue
            if meter in self._lost:
                self._lost.discard(meter)
                log.info("meter_is_back", source=meter.source, meter=meter.component)
            if power is not None:
                yield meter, power

    def _lose(self, meter: Meter, error: Unreadable) -> None:
        """A meter that cannot be read is left out, and reported once."""
        if meter not in self._lost:
            self._lost.add(meter)
            log.warning(
                "meter_lost",
                source=meter.source,
                meter=meter.component,
                error=str(error),
                next="its readings are left out; it is looked for again each minute",
            )

    def _discover(self, at_s: float) -> None:
        """Probes that are known stay as they are: a counter needs its former value."""
        found = {probe.meter: probe for probe in self._find()}
        gone = self._probes.keys() - found.keys()
        for meter in gone - self._lost:
            self._lose(meter, Unreadable("it is no longer there"))
        if added := found.keys() - self._probes.keys():
            names = sorted(f"{meter.source} {meter.component}" for meter in added)
            log.info("meters_found", meters=names)
        elif self._discovered_s is None:
            log.warning("no_meter", next="no power is published; meters are looked for each minute")
        self._probes = {meter: self._probes.get(meter, probe) for meter, probe in found.items()}
        self._discovered_s = at_s

    def _find(self) -> Iterator[Probe]:
        yield from probes.rapl(self.host)
        yield from probes.sensors(self.host)
        if library := self.library():
            yield from probes.nvidia(library)
        yield from probes.amd(self.host)

    def library(self) -> Library | None:
        """NVML, opened when a driver is there."""
        if self._library is None:
            self._library = opened(self.host)
        return self._library
