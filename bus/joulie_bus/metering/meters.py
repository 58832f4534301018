"""The meters of a node, and the power that they add up to."""

from enum import StrEnum
from typing import NamedTuple


class Part(StrEnum):
    """What a meter covers."""

    CHASSIS = "chassis"  # the whole machine with its cards
    PLATFORM = "platform"  # the board without its cards
    PACKAGE = "package"  # one processor
    MEMORY = "memory"  # the memory of one processor
    CARD = "card"


class Meter(NamedTuple):
    """A part of a node, and what measures it, such as `rapl`, `nvml` or `kepler`."""

    source: str
    component: str
    part: Part


class NodePower(NamedTuple):
    """The power that is measured. `covers` names it: node, parts (no fans, disks and losses of the
    power supply) or cards (nothing else is metered)."""

    power_mw: int
    covers: str
    provider: str
    card_mw: dict[str, int]
    meters: tuple[Meter, ...]  # that add up to it
    is_modelled: bool = False  # a part of it is
