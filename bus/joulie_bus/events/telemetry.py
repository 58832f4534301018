"""Readings of power and temperature: of a node, and of the building."""

from typing import ClassVar, Literal

from joulie_bus.events.base import Event
from joulie_bus.events.bounds import FacilityMilliwatts, Millidegrees, Milliwatts, Name, Word

PowerSource = Literal["kepler", "utilization", "static"]


class TelemetrySampled(Event, frozen=True, kw_only=True, gc=False):
    """One reading of one node's power. A failed reading produces no event, never 0 W."""

    TYPE: ClassVar[str] = "telemetry.sampled"
    node: Name
    power_mw: Milliwatts
    source: PowerSource = "kepler"
    provider: Word = ""

    @property
    def key(self) -> str:
        return self.node


class FacilityPolled(Event, frozen=True, kw_only=True):
    """One reading of the building. A failed reading is absent: the last one stays and ages."""

    TYPE: ClassVar[str] = "facility.polled"
    facility: Name
    ambient_mdeg: Millidegrees | None = None  # thousandths of a degree Celsius
    it_mw: FacilityMilliwatts | None = None
    cooling_mw: FacilityMilliwatts | None = None

    @property
    def key(self) -> str:
        return self.facility
