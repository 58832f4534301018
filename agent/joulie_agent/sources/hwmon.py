"""Power and energy sensors of the kernel's hardware monitoring (hwmon), besides those of cards."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_agent.report import Reading
from joulie_agent.sources.host import Findings, Host, Unreadable, numbered

SOURCE = "hwmon"
CARDS = frozenset({"amdgpu", "nouveau", "xe", "i915"})  # read with their cards
WHOLE = "power_meter"  # an ACPI power meter
ACCURACY = {
    "chassis": "the ACPI power meter of the whole machine, as its maker built it",
    "package": "a counter of one processor socket; measured by the processor",
    "part": "a sensor of a part of the machine; it is not added to the node's power",
}


class Sensor(NamedTuple):
    """One file with microwatts or microjoules. `kind` is chassis, package or part."""

    name: str
    kind: str
    file: Path
    is_counter: bool


def sensors(host: Host) -> list[Sensor]:
    chips = numbered(host, host.path("sys/class/hwmon"), "hwmon")
    return [sensor for chip in chips for sensor in _sensors_of(host, chip)]


def value(host: Host, sensor: Sensor) -> float:
    """Watts, or joules of a counter. Raises Unreadable."""
    return host.count(sensor.file) / 1e6 if sensor.is_counter else host.watts(sensor.file)


def read(host: Host, found: Findings) -> None:
    known = sensors(host)
    if not known:
        found.lacks(SOURCE, "/sys/class/hwmon has no sensor of power or energy outside of cards")
    for sensor in known:
        try:
            amount = value(host, sensor)
        except Unreadable as error:
            found.lacks(f"{SOURCE} {sensor.name}", error)
            continue
        found.readings.append(
            Reading(
                source=SOURCE,
                component=sensor.name,
                accuracy=ACCURACY[sensor.kind],
                watts=None if sensor.is_counter else amount,
                joules=amount if sensor.is_counter else None,
            )
        )


def _sensors_of(host: Host, chip: Path) -> Iterator[Sensor]:
    driver = host.word(chip / "name")
    if not driver or driver in CARDS:
        return
    for number in range(1, 513):  # amd_energy has a sensor for each core
        energy = chip / f"energy{number}_input"
        power = _power_file(chip, number)
        if not energy.exists() and power is None:
            return
        label = host.word(chip / f"{'energy' if energy.exists() else 'power'}{number}_label")
        name = f"{driver} {chip.name}/{label or number}"
        if energy.exists():
            yield Sensor(name, _kind(driver, label), energy, is_counter=True)
        elif power is not None:
            yield Sensor(name, _kind(driver, label), power, is_counter=False)


def _power_file(chip: Path, number: int) -> Path | None:
    files = (chip / f"power{number}_average", chip / f"power{number}_input")
    return next((file for file in files if file.exists()), None)


def _kind(driver: str, label: str) -> str:
    if driver == WHOLE:
        return "chassis"
    return "package" if driver == "amd_energy" and label.startswith("Esocket") else "part"
