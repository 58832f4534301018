"""What reads one meter again and again."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from joulie_agent.measure.counters import Count, advanced_uj, mean_mw
from joulie_agent.sources import amdgpu, hwmon, nvml, powercap
from joulie_agent.sources.host import Host, Unreadable
from joulie_agent.sources.nvml import Device, Library
from joulie_bus.events.bounds import is_card_name
from joulie_bus.metering.energy import EnergyMeter
from joulie_bus.metering.meters import Meter, Part

COUNTED_EACH_S = 10
_RAPL = {"package": Part.PACKAGE, "dram": Part.MEMORY, "psys": Part.PLATFORM}
_HWMON = {"package": Part.PACKAGE, "chassis": Part.CHASSIS}


class Probe(Protocol):
    """One meter, and what it has counted. Its power is None for the first reading of a counter."""

    @property
    def meter(self) -> Meter: ...
    @property
    def energy(self) -> EnergyMeter: ...
    def power_mw(self, at_s: float) -> int | None: ...  # raises Unreadable


class PowerProbe:
    """A meter that shows power."""

    def __init__(self, meter: Meter, read_w: Callable[[], float]) -> None:
        self.meter = meter
        self.energy = EnergyMeter()
        self._read_w = read_w

    def power_mw(self, at_s: float) -> int | None:
        power = round(self._read_w() * 1000)
        self.energy.saw_power(at_s, power)
        return power


class CardProbe(PowerProbe):
    """A meter that shows power at once, and a counter that takes 4 ms of a core to read."""

    def __init__(
        self,
        meter: Meter,
        read_w: Callable[[], float],
        read_uj: Callable[[], int | None],
        offset_s: float = 0.0,
    ) -> None:
        super().__init__(meter, read_w)
        self._read_uj = read_uj
        self._due_s: float | None = None
        self._offset_s = offset_s  # so that not all cards are counted in the same second
        self._last: Count | None = None

    def power_mw(self, at_s: float) -> int | None:
        power = super().power_mw(at_s)
        if self._due_s is None:
            self._due_s = at_s + self._offset_s
        if at_s >= self._due_s:
            self._due_s = at_s + COUNTED_EACH_S
            self._count(at_s)
        return power

    def _count(self, at_s: float) -> None:
        value_uj = self._read_uj()
        if value_uj is None:
            return
        now = Count(at_s, value_uj)
        before, self._last = self._last, now
        self.energy.saw_counter(None if before is None else advanced_uj(before, now, 0))


class CounterProbe:
    """A meter that counts energy: its power is the mean since it was read before."""

    def __init__(self, meter: Meter, read_uj: Callable[[], int], wraps_at_uj: int = 0) -> None:
        self.meter = meter
        self.energy = EnergyMeter()
        self._read_uj = read_uj
        self._wraps_at_uj = wraps_at_uj
        self._last: Count | None = None

    def power_mw(self, at_s: float) -> int | None:
        now = Count(at_s, self._read_uj())
        before, self._last = self._last, now
        risen = None if before is None else advanced_uj(before, now, self._wraps_at_uj)
        self.energy.saw_counter(risen)
        return None if before is None or risen is None else mean_mw(risen, at_s - before.at_s)


def rapl(host: Host) -> Iterator[Probe]:
    for domain in powercap.domains(host):
        if domain.kind in _RAPL:
            meter = Meter(powercap.SOURCE, domain.name, _RAPL[domain.kind])
            read_uj = partial(powercap.counter_uj, host, domain)
            yield CounterProbe(meter, read_uj, domain.wraps_at_uj)


def sensors(host: Host) -> Iterator[Probe]:
    for sensor in hwmon.sensors(host):
        if sensor.kind not in _HWMON:
            continue
        meter = Meter(hwmon.SOURCE, sensor.name, _HWMON[sensor.kind])
        if sensor.is_counter:
            yield CounterProbe(meter, partial(host.count, sensor.file))
        else:
            yield PowerProbe(meter, partial(hwmon.value, host, sensor))


def nvidia(library: Library) -> Iterator[Probe]:
    for number, device in enumerate(library.devices):
        if is_card_name(device.uuid) and library.power_mw(device) is not None:
            meter = Meter(nvml.SOURCE, device.uuid, Part.CARD)
            readers = partial(_watts, library, device), partial(_counter_uj, library, device)
            yield CardProbe(meter, *readers, offset_s=number % COUNTED_EACH_S)


def amd(host: Host) -> Iterator[Probe]:
    for card in amdgpu.devices(host):
        uuid = amdgpu.uuid_of(host, card)
        if is_card_name(uuid) and amdgpu.has_sensor(host, card):
            meter = Meter(amdgpu.SOURCE, uuid, Part.CARD)
            yield PowerProbe(meter, partial(amdgpu.power_w, host, card))


def _counter_uj(library: Library, device: Device) -> int | None:
    energy_mj = library.energy_mj(device)
    return None if energy_mj is None else energy_mj * 1000


def _watts(library: Library, device: Device) -> float:
    power = library.power_mw(device)
    if power is None:
        raise Unreadable(f"card {device.uuid}: NVML gives no power")
    return power / 1000
