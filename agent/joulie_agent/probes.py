"""What reads one meter again and again."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from joulie_agent.measure.counters import Count, advanced_uj, mean_mw
from joulie_agent.measure.node_power import Meter, Part
from joulie_agent.sources import amdgpu, hwmon, nvml, powercap
from joulie_agent.sources.host import Host, Unreadable
from joulie_agent.sources.nvml import Device, Library

_RAPL = {"package": Part.PACKAGE, "dram": Part.MEMORY, "psys": Part.PLATFORM}
_HWMON = {"package": Part.PACKAGE, "chassis": Part.CHASSIS}


class Probe(Protocol):
    """One meter. Its power is None for the first reading of a counter."""

    @property
    def meter(self) -> Meter: ...
    def power_mw(self, at_s: float) -> int | None: ...  # raises Unreadable


class PowerProbe(NamedTuple):
    """A meter that shows power."""

    meter: Meter
    read_w: Callable[[], float]

    def power_mw(self, at_s: float) -> int | None:
        del at_s  # only counters need it
        return round(self.read_w() * 1000)


class CounterProbe:
    """A meter that counts energy: its power is the mean since it was read before."""

    def __init__(self, meter: Meter, read_uj: Callable[[], int], wraps_at_uj: int = 0) -> None:
        self.meter = meter
        self._read_uj = read_uj
        self._wraps_at_uj = wraps_at_uj
        self._last: Count | None = None

    def power_mw(self, at_s: float) -> int | None:
        now = Count(at_s, self._read_uj())
        before, self._last = self._last, now
        risen = None if before is None else advanced_uj(before, now, self._wraps_at_uj)
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
            yield CounterProbe(meter, partial(host.integer, sensor.file))
        else:
            yield PowerProbe(meter, partial(hwmon.value, host, sensor))


def nvidia(library: Library) -> Iterator[Probe]:
    for device in library.devices:
        if library.power_mw(device) is not None:
            meter = Meter(nvml.SOURCE, device.uuid, Part.CARD)
            yield PowerProbe(meter, partial(_watts, library, device))


def amd(host: Host) -> Iterator[Probe]:
    for card in amdgpu.devices(host):
        if amdgpu.has_sensor(host, card):
            meter = Meter(amdgpu.SOURCE, amdgpu.uuid_of(host, card), Part.CARD)
            yield PowerProbe(meter, partial(amdgpu.power_w, host, card))


def _watts(library: Library, device: Device) -> float:
    power = library.power_mw(device)
    if power is None:
        raise Unreadable(f"card {device.uuid}: NVML gives no power")
    return power / 1000
