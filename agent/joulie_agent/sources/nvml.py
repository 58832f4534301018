"""Cards of NVIDIA through NVML (`nvidia-ml-py`): power, energy, memory, health, limits, links.

What the calls cost on one H100 decides how often each is made: power 1 to 2 us, memory and
processes 6 to 26 us, a power limit 140 us, and the energy counter 4 ms of CPU.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from joulie_agent.measure.links import groups_of
from joulie_agent.report import CapRange, Card, Reading
from joulie_agent.sources.host import Findings, Host
from joulie_agent.sources.xids import Errors, errors_of

SOURCE = "nvml"
LIBRARY = "libnvidia-ml.so.1"
FOLDERS = (  # of the host, or of a driver that runs in a container
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
)
MOST_LINKS = 18
SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
MIB, NS = 1 << 20, 1e9
# Models of which the sensor samples a part of the time, so that short bursts are missed or counted
# twice (arXiv 2312.02741 measured 25 % of the time on these).
PARTLY_SAMPLED = ("A100", "H100", "H200", "GH200")
RECOVERY = {
    1: "the driver asks for a reset of the card",
    2: "the driver asks for a reboot of the node",
    3: "the driver asks to drain peer-to-peer traffic of the card",
    4: "the driver asks to drain and reset the card",
}

Nvml = Any  # the module pynvml, which has no types
Handle = Any


class Device(NamedTuple):
    """A card that answered when the library was opened."""

    place: int  # of the card, as NVML counts
    uuid: str
    model: str
    handle: Handle


class CardsGone(Exception):
    """NVML is not there, or its driver does not answer."""


class Library:
    """An open NVML library and its cards."""

    def __init__(self, api: Nvml, devices: list[Device], driver: str) -> None:
        self.api = api
        self.devices = devices
        self.driver = driver

    @classmethod
    def open(cls, path: str = "") -> "Library":
        """Raises CardsGone. `path` is that of libnvidia-ml.so.1 outside of the usual folders."""
        try:
            api: Nvml = import_module("pynvml")
        except ImportError as error:
            raise CardsGone("nvidia-ml-py is not installed; pip install 'joulie[agent]'") from error
        if path:
            _load(path)
        try:
            api.nvmlInit()
            found = [_device(api, index) for index in range(api.nvmlDeviceGetCount())]
            driver = str(api.nvmlSystemGetDriverVersion())
        except api.NVMLError as error:
            raise CardsGone(_why(api, error)) from error
        return cls(api, [device for device in found if device], driver)

    def close(self) -> None:
        with suppress(self.api.NVMLError):
            self.api.nvmlShutdown()

    @cached_property
    def errors(self) -> Errors | None:
        """From the first call on; a program that only sets limits never asks."""
        return errors_of(self.api, [device.handle for device in self.devices])

    def ask(self, function: str, *arguments: object) -> Any:
        """The answer, or None where the card does not support the question."""
        try:
            return getattr(self.api, function)(*arguments)
        except (self.api.NVMLError, AttributeError):
            return None

    def field(self, card: Device, name: str) -> int | None:
        """A field value that is an integer, or None."""
        number = getattr(self.api, name, None)
        values = (
            None if number is None else self.ask("nvmlDeviceGetFieldValues", card.handle, [number])
        )
        if values is None or values[0].nvmlReturn != self.api.NVML_SUCCESS:
            return None
        return int(values[0].value.ullVal)

    def power_mw(self, card: Device) -> int | None:
        """The mean of the last second on most models."""
        return self.ask("nvmlDeviceGetPowerUsage", card.handle)  # type: ignore[no-any-return]

    def energy_mj(self, card: Device) -> int | None:
        """Since the driver was loaded. It costs 4 ms of CPU."""
        return self.ask("nvmlDeviceGetTotalEnergyConsumption", card.handle)  # type: ignore[no-any-return]

    def limited_s(self, card: Device, policy: str) -> float | None:
        """How long a policy slowed the card down."""
        status = self.ask("nvmlDeviceGetViolationStatus", card.handle, getattr(self.api, policy))
        return None if status is None else status.violationTime / NS


def library_in(host: Host) -> str:
    """The library below another root than "/"; "" leaves it to the loader."""
    if host.root == Path("/"):
        return ""
    files = (host.path(folder, LIBRARY) for folder in FOLDERS)
    return next((str(file) for file in files if file.is_file()), "")


def opened(host: Host) -> Library | None:
    """None where no driver of NVIDIA answers."""
    try:
        return Library.open(library_in(host))
    except CardsGone:
        return None


def read(host: Host, found: Findings) -> tuple[Card, ...]:
    """Everything that NVML knows, once."""
    try:
        library = Library.open(library_in(host))
    except CardsGone as error:
        found.lacks(SOURCE, error)
        return ()
    try:
        for device in library.devices:
            _read_power(library, device, found)
        return cards_of(host, library, found)
    finally:
        library.close()


def cards_of(host: Host, library: Library, found: Findings) -> tuple[Card, ...]:
    """The cards with their limits, without what they draw."""
    if not library.devices:
        found.lacks(SOURCE, "the driver of NVIDIA knows no card")
    groups = link_groups(library)
    for device in library.devices:
        if cap := limits(library, device):
            found.caps.append(cap)
    return tuple(
        describe(host, library, card, groups.get(card.uuid, "")) for card in library.devices
    )


def _read_power(library: Library, card: Device, found: Findings) -> None:
    power, energy = library.power_mw(card), library.energy_mj(card)
    if power is None and energy is None:
        found.lacks(f"{SOURCE} {card.uuid}", "the card has neither a power sensor nor a counter")
        return
    found.readings.append(
        Reading(
            source=SOURCE,
            component=card.uuid,
            accuracy=accuracy_of(card.model),
            watts=None if power is None else power / 1000,
            joules=None if energy is None else energy / 1000,
        )
    )


def accuracy_of(model: str) -> str:
    if any(name in model for name in PARTLY_SAMPLED):
        return (
            "the whole board; watts are a mean over a second; the sensor of this model samples a"
            " part of the time, so loads that repeat within a second may be off by some percent"
        )
    return "the whole board; watts are a mean over up to a second, within 5 percent by its maker"


def limits(library: Library, card: Device) -> CapRange | None:
    """The power limit of a card and its range; None for a card without one."""
    limit = library.ask("nvmlDeviceGetPowerManagementLimit", card.handle)
    if limit is None:
        return None
    span = library.ask("nvmlDeviceGetPowerManagementLimitConstraints", card.handle)
    default = library.ask("nvmlDeviceGetPowerManagementDefaultLimit", card.handle)
    return CapRange(
        source=SOURCE,
        component=card.uuid,
        watts=limit / 1000,
        min_watts=None if span is None else span[0] / 1000,
        max_watts=None if span is None else span[1] / 1000,
        default_watts=None if default is None else default / 1000,
    )


def describe(host: Host, library: Library, card: Device, link_group: str) -> Card:
    handle = card.handle
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    mig = library.ask("nvmlDeviceGetMigMode", handle)
    faults = problems(library, card)
    return Card(
        uuid=card.uuid,
        index=card.place,
        source=SOURCE,
        model=card.model,
        memory_mb=memory.total // MIB if memory else 0,
        used_mb=memory.used // MIB if memory else 0,
        pci=_text(pci.busId) if pci else "",
        numa_node=_numa_node(host, _text(pci.busId) if pci else ""),
        link_group=link_group,
        mig=bool(mig and mig[0]),
        driver=library.driver,
        healthy=not faults,
        problems=faults,
        processes=len(library.ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()),
        power_limited_s=library.limited_s(card, "NVML_PERF_POLICY_POWER"),
        heat_limited_s=library.limited_s(card, "NVML_PERF_POLICY_THERMAL"),
    )


def problems(library: Library, card: Device) -> tuple[str, ...]:
    """Why the card should get no work; empty for a healthy one."""
    return tuple(_problems(library, card))


def _problems(library: Library, card: Device) -> Iterator[str]:
    api = library.api
    try:
        api.nvmlDeviceGetUUID(card.handle)
    except api.NVMLError as error:
        yield f"the card does not answer: {error}"
        return
    errors = library.ask(
        "nvmlDeviceGetTotalEccErrors",
        card.handle,
        api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        api.NVML_VOLATILE_ECC,
    )
    if errors:
        yield f"{errors} uncorrected ECC errors since the driver was loaded"
    rows = library.ask("nvmlDeviceGetRemappedRows", card.handle)
    if rows and rows[3]:
        yield "remapping of a faulty memory row failed"
    elif rows and rows[2]:
        yield "a faulty memory row waits for a reset of the card to be remapped"
    if library.errors is not None:
        yield from library.errors.of(card.uuid)
    action = library.field(card, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")
    if action in RECOVERY:
        yield RECOVERY[action]


def link_groups(library: Library) -> dict[str, str]:
    """The group of linked cards of each card; a card without NVLink is absent."""
    by_pci = {address: card.uuid for card in library.devices if (address := _pci_of(library, card))}
    peers = {card.uuid: set(_peers(library, card, by_pci)) for card in library.devices}
    return groups_of(peers)


def _peers(library: Library, card: Device, by_pci: dict[str, str]) -> Iterator[str]:
    """The cards at the other ends of its links; all cards behind the switches share "switch"."""
    for link in range(MOST_LINKS):
        if library.ask("nvmlDeviceGetNvLinkState", card.handle, link) != 1:
            continue
        if library.ask("nvmlDeviceGetNvLinkRemoteDeviceType", card.handle, link) == SWITCH:
            yield "switch"
            continue
        remote = library.ask("nvmlDeviceGetNvLinkRemotePciInfo", card.handle, link)
        if remote is not None and (peer := by_pci.get(_text(remote.busId).lower())):
            yield peer


def _pci_of(library: Library, card: Device) -> str:
    pci = library.ask("nvmlDeviceGetPciInfo", card.handle)
    return _text(pci.busId).lower() if pci else ""


def _numa_node(host: Host, address: str) -> int | None:
    """NVML's own question about it is for cards that are NUMA nodes themselves."""
    short = address.lower()[-12:]  # NVML writes eight digits of the domain, the kernel four
    return host.maybe_count(host.path("sys/bus/pci/devices", short, "numa_node"))


def _device(api: Nvml, index: int) -> Device | None:
    """None for a card that was lost: the driver still counts it."""
    try:
        handle = api.nvmlDeviceGetHandleByIndex(index)
        return Device(
            index,
            _text(api.nvmlDeviceGetUUID(handle)),
            _text(api.nvmlDeviceGetName(handle)),
            handle,
        )
    except api.NVMLError:
        return None


def _load(path: str) -> None:
    """The loader returns an open library for its name, so that pynvml finds this one."""
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CardsGone(f"{path}: {error}") from error


def _why(api: Nvml, error: Exception) -> str:
    if isinstance(error, api.NVMLError_LibraryNotFound):
        return f"{LIBRARY} is not found: this machine has no driver of NVIDIA"
    return f"{LIBRARY} does not answer: {error}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
