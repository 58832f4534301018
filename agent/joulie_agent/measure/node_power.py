"""The power of a node out of the power of its parts."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from joulie_bus.metering.meters import Meter, NodePower, Part


def node_power(
    readings: Mapping[Meter, int], missing: AbstractSet[Meter] = frozenset()
) -> NodePower | None:
    """The best sum of these readings in milliwatts; None without any.

    Each part counts once: of two meters of the processors, the one that covers more is used. Of
    `missing` meters nothing was read this time. A sum without one of the processors is none.
    """
    cards = {meter.component: mw for meter, mw in readings.items() if meter.part is Part.CARD}
    by_part = {part: _of(readings, part) for part in Part}
    if chassis := by_part[Part.CHASSIS]:
        largest = max(chassis, key=chassis.__getitem__)
        return NodePower(chassis[largest], "node", _names(chassis), cards, (largest,))
    board = by_part[Part.PLATFORM] or _processors(by_part, missing)
    if board:
        used = {**board, **by_part[Part.CARD]}
        power_mw = sum(board.values()) + sum(cards.values())
        return NodePower(power_mw, "parts", _names(used), cards, tuple(used))
    if cards:
        used = by_part[Part.CARD]
        return NodePower(sum(cards.values()), "cards", _names(used), cards, tuple(used))
    return None


def _of(readings: Mapping[Meter, int], part: Part) -> dict[Meter, int]:
    return {meter: mw for meter, mw in readings.items() if meter.part is part}


def _processors(
    by_part: Mapping[Part, dict[Meter, int]], missing: AbstractSet[Meter]
) -> dict[Meter, int]:
    """Packages of one source only: RAPL and the driver amd_energy show the same processors."""
    packages = by_part[Part.PACKAGE]
    incomplete = {meter.source for meter in missing if meter.part in (Part.PACKAGE, Part.MEMORY)}
    sources = [name for name in ("rapl", "hwmon") if name not in incomplete]
    source = next((name for name in sources if _from(packages, name)), "")
    return {**_from(packages, source), **by_part[Part.MEMORY]} if source else {}


def _from(readings: Mapping[Meter, int], source: str) -> dict[Meter, int]:
    return {meter: mw for meter, mw in readings.items() if meter.source == source}


def _names(used: Mapping[Meter, int]) -> str:
    """Such as "rapl package+memory, nvml card"."""
    parts: dict[str, list[str]] = {}
    for meter in used:
        names = parts.setdefault(meter.source, [])
        if meter.part not in names:
            names.append(meter.part)
    return ", ".join(f"{source} {'+'.join(names)}" for source, names in parts.items())
