"""Cards of AMD through the files of their kernel driver (amdgpu)."""

from pathlib import Path

from joulie_agent.measure.links import groups_of
from joulie_agent.report import CapRange, Card, Reading
from joulie_agent.sources.host import Findings, Host, Unreadable, numbered

SOURCE = "amdgpu"
VENDOR = "0x1002"
ACCURACY = "the whole board, as its firmware averages it"
MIB = 1 << 20


def devices(host: Host) -> list[Path]:
    """The folder of each card, by the number of its card."""
    cards = [folder / "device" for folder in numbered(host, host.path("sys/class/drm"), "card")]
    return [card for card in cards if host.maybe(card / "vendor") == VENDOR]


def read(host: Host, found: Findings) -> tuple[Card, ...]:
    for card in devices(host):
        _read_power(host, card, found)
    return cards_of(host, found)


def cards_of(host: Host, found: Findings) -> tuple[Card, ...]:
    """The cards with their limits, without what they draw."""
    known = devices(host)
    if not known:
        found.lacks(SOURCE, "/sys/class/drm has no card of AMD")
    hives = {
        uuid_of(host, card): host.maybe(card / "xgmi_hive_info/xgmi_hive_id") for card in known
    }
    groups = groups_of({uuid: {hive} if hive else set() for uuid, hive in hives.items()})
    found.caps.extend(cap for card in known if (cap := _limits(host, card)))
    return tuple(
        _card(host, card, index, groups.get(uuid_of(host, card), ""))
        for index, card in enumerate(known)
    )


def uuid_of(host: Host, card: Path) -> str:
    """AMD's own tools write the unique id this way; cards without one have their PCI address."""
    unique = host.maybe(card / "unique_id")
    return f"GPU-{unique}" if unique else f"pci-{_pci(host, card)}"


def has_sensor(host: Host, card: Path) -> bool:
    return _sensor(host, card) is not None


def power_w(host: Host, card: Path) -> float:
    """Raises Unreadable."""
    sensor = _sensor(host, card)
    if sensor is None:
        raise Unreadable(f"{host.path_on_host(card)} has no power sensor")
    average = sensor / "power1_average"
    return host.integer(average if average.exists() else sensor / "power1_input") / 1e6


def _read_power(host: Host, card: Path, found: Findings) -> None:
    uuid = uuid_of(host, card)
    try:
        watts = power_w(host, card)
    except Unreadable as error:
        found.lacks(f"{SOURCE} {uuid}", error)
    else:
        found.readings.append(
            Reading(source=SOURCE, component=uuid, watts=watts, accuracy=ACCURACY)
        )


def _limits(host: Host, card: Path) -> CapRange | None:
    sensor = _sensor(host, card)
    if sensor is None or not (sensor / "power1_cap").exists():
        return None
    files = ("power1_cap", "power1_cap_min", "power1_cap_max", "power1_cap_default")
    watts = [
        None if (value := host.maybe_integer(sensor / file)) is None else value / 1e6
        for file in files
    ]
    return CapRange(
        source=SOURCE,
        component=uuid_of(host, card),
        watts=watts[0],
        min_watts=watts[1],
        max_watts=watts[2],
        default_watts=watts[3],
    )


def _card(host: Host, card: Path, index: int, link_group: str) -> Card:
    faults = _problems(host, card)
    numa = host.maybe_integer(card / "numa_node")
    return Card(
        uuid=uuid_of(host, card),
        index=index,
        source=SOURCE,
        model=host.maybe(card / "product_name") or _model(host, card),
        memory_mb=(host.maybe_integer(card / "mem_info_vram_total") or 0) // MIB,
        used_mb=(host.maybe_integer(card / "mem_info_vram_used") or 0) // MIB,
        pci=_pci(host, card),
        numa_node=None if numa is None or numa < 0 else numa,
        link_group=link_group,
        driver=host.maybe(host.path("sys/module/amdgpu/version")),
        healthy=not faults,
        problems=faults,
    )


def _problems(host: Host, card: Path) -> tuple[str, ...]:
    """Uncorrected errors of the memory, as the driver's RAS counts them."""
    text = host.maybe(card / "ras/umc_err_count")
    counts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    uncorrected = counts.get("ue", "0").strip()
    return (
        (f"{uncorrected} uncorrected errors of the memory",) if uncorrected not in ("0", "") else ()
    )


def _model(host: Host, card: Path) -> str:
    device = host.maybe(card / "device")
    return f"AMD {device}" if device else "AMD"


def _pci(host: Host, card: Path) -> str:
    uevent = host.maybe(card / "uevent")
    slot = [line for line in uevent.splitlines() if line.startswith("PCI_SLOT_NAME=")]
    return slot[0].partition("=")[2] if slot else card.resolve().name


def _sensor(host: Host, card: Path) -> Path | None:
    return next(iter(host.folders(card / "hwmon")), None)
