"""What an agent read of its node at one moment, as `joulie agent --once -o json` prints it."""

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One meter. It has watts, or joules that a counter has counted so far, or both."""

    source: str
    component: str
    accuracy: str  # what the meter covers, and how well
    watts: float | None = None
    joules: float | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    model: str = ""
    sockets: int = 0
    cores: int = 0
    threads: int = 0


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    cpu: Cpu = Cpu()
    memory_bytes: int = 0
    machine: str = ""  # maker and product, as the firmware names them
    virtual: bool = False


class CapRange(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of one component and the range that its hardware accepts, in watts."""

    source: str
    component: str
    watts: float | None = None
    min_watts: float | None = None
    max_watts: float | None = None
    default_watts: float | None = None


class Card(msgspec.Struct, frozen=True, kw_only=True):
    uuid: str
    index: int
    source: str
    model: str = ""
    memory_mb: int = 0
    used_mb: int = 0
    pci: str = ""
    numa_node: int | None = None
    link_group: str = ""  # cards with the same group are linked; empty: no link
    mig: bool = False
    driver: str = ""
    healthy: bool = True
    problems: tuple[str, ...] = ()
    processes: int = 0
    # Seconds for which the card was slowed down since its driver was loaded; None: not known.
    power_limited_s: float | None = None
    heat_limited_s: float | None = None
    pods: tuple[str, ...] = ()  # namespace/name, as the kubelet assigned it


class NotAvailable(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    why: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    hardware: Hardware
    readings: tuple[Reading, ...] = ()
    cards: tuple[Card, ...] = ()
    caps: tuple[CapRange, ...] = ()
    not_available: tuple[NotAvailable, ...] = ()
