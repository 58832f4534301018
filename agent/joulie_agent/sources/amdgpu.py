"""Cards of AMD through the files of their kernel driver (amdgpu)."""

from pathlib import Path

from joulie_agent.measure.links import groups_of
from joulie_agent.report import CapRange, Card, Reading
from joulie_agent.sources.host import Findings, Host, Unreadable, natural, numbered
from joulie_bus.events.bounds import MOST_CARD_MB, is_card_name

SOURCE = "amdgpu"
VENDOR = "0x1002"
ACCURACY = "the whole board, as its firmware averages it"
MIB = 1 << 20


def devices(host: Host) -> list[Path]:
    """The folder of each card, by the number of its card."""
    cards = [folder / "device" for folder in numbered(host, host.path("sys/class/drm"), "card")]
    return [card for card in cards if host.word(card / "vendor") == VENDOR]


def read(host: Host, found: Findings) -> tuple[Card, ...]:
    for card in devices(host):
        _read_power(host, card, found)
    return cards_of(host, found)


def cards_of(host: Host, found: Findings) -> tuple[Card, ...]:
    """The cards with their limits, without what they draw."""
    known = devices(host)
    if not known:
        found.lacks(SOURCE, "/sys/class/drm has no card of AMD")
    named = {uuid: card for card in known if is_card_name(uuid := uuid_of(host, card))}
    hives = {uuid: host.word(card / "xgmi_hive_info/xgmi_hive_id") for uuid, card in named.items()}
    groups = groups_of({uuid: {hive} if hive else set() for uuid, hive in hives.items()})
    found.caps.extend(cap for card in known if (cap := _limits(host, card)))
    return tuple(
        _card(host, card, index, groups.get(uuid_of(host, card), ""))
        for index, card in enumerate(known)
    )


def uuid_of(host: Host, card: Path) -> str:
    """AMD's own tools write the unique id this way. Cards without one have their PCI address, which
    other nodes have too, with the name of the node."""
    unique = host.word(card / "unique_id")
    if unique:
        return f"GPU-{unique.lower()}"
    return ".".join(filter(None, (f"pci-{_pci(host, card).replace(':', '-')}", host.node)))


def has_sensor(host: Host, card: Path) -> bool:
    return _sensor(host, card) is not None


def power_w(host: Host, card: Path) -> float:
    """Raises Unreadable."""
    sensor = _sensor(host, card)
    if sensor is None:
        raise Unreadable(f"{host.path_on_host(card)} has no power sensor")
    average = sensor / "power1_average"
    return host.watts(average if average.exists() else sensor / "power1_input")


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
    watts = [host.maybe_watts(sensor / file) for file in files]
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
    numa = host.maybe_count(card / "numa_node")
    return Card(
        uuid=uuid_of(host, card),
        index=index,
        source=SOURCE,
        model=host.word(card / "product_name") or _model(host, card),
        memory_mb=_megabytes(host, card / "mem_info_vram_total"),
        used_mb=_megabytes(host, card / "mem_info_vram_used"),
        pci=_pci(host, card),
        numa_node=numa,
        link_group=link_group,
        driver=host.word(host.path("sys/module/amdgpu/version")),
        healthy=not faults,
        problems=faults,
    )


def _problems(host: Host, card: Path) -> tuple[str, ...]:
    """Uncorrected errors of the memory, as the driver's RAS counts them."""
    text = host.maybe(card / "ras/umc_err_count")
    counts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    uncorrected = natural(counts.get("ue", "").strip())
    return (f"{uncorrected} uncorrected errors of the memory",) if uncorrected else ()


def _megabytes(host: Host, file: Path) -> int:
    """0: unknown."""
    megabytes = (host.maybe_count(file) or 0) // MIB
    return megabytes if megabytes <= MOST_CARD_MB else 0


def _model(host: Host, card: Path) -> str:
    device = host.word(card / "device")
    return f"AMD {device}" if device else "AMD"


def _pci(host: Host, card: Path) -> str:
    uevent = host.maybe(card / "uevent")
    slot = [line for line in uevent.splitlines() if line.startswith("PCI_SLOT_NAME=")]
    return slot[0].partition("=")[2] if slot else card.resolve().name


def _sensor(host: Host, card: Path) -> Path | None:
    return next(iter(host.folders(card / "hwmon")), None)
