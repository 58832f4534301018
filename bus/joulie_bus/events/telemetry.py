"""Readings of power and temperature, of a node and of the building; targets for the power; and what
caps were measured to save."""

from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import FromNode, Observation
from joulie_bus.events.bounds import (
    CardEnergies,
    CardPowers,
    Count,
    FacilityMilliwatts,
    Lateness,
    Millidegrees,
    Milliwatts,
    Name,
    Nanoseconds,
    PodEnergies,
    Word,
)
from joulie_bus.events.pods import WorkloadClass

Change = Annotated[int, msgspec.Meta(ge=-1000, le=1_000_000)]
PowerSource = Literal["kepler", "utilization", "static"]


class TelemetrySampled(FromNode, frozen=True, kw_only=True, gc=False):
    """One reading of one node's power. A failed reading produces no event, never 0 W."""

    TYPE: ClassVar[str] = "telemetry.sampled"
    node: Name
    power_mw: Milliwatts
    source: PowerSource = "kepler"
    provider: Word = ""
    card_mw: CardPowers = {}  # by the UUID of the card; a part of `power_mw`
    # Of the time since the reading before; `power_mw` is the power at its end.
    min_mw: Milliwatts | None = None
    mean_mw: Milliwatts | None = None
    max_mw: Milliwatts | None = None
    # Counters of microjoules, which began at 0 at `counted_from` and never fall. Those that began
    # at different times are different counters. 0: nothing is counted.
    counted_from: Nanoseconds = 0
    energy_uj: Count = 0  # of what `power_mw` covers
    card_uj: CardEnergies = ()  # in the order of `card_mw`
    # Of pods by their uids, above idle; in some readings only.
    pod_uj: PodEnergies = {}
    late_ms: Lateness = 0  # how long it was kept before it could be published

    @property
    def key(self) -> str:
        return self.node


class FacilityPolled(Observation, frozen=True, kw_only=True):
    """One reading of the building. A failed reading is absent: the last one stays and ages."""

    TYPE: ClassVar[str] = "facility.polled"
    TOKEN: ClassVar[str] = "facility"
    facility: Name
    ambient_mdeg: Millidegrees | None = None  # thousandths of a degree Celsius
    it_mw: FacilityMilliwatts | None = None
    cooling_mw: FacilityMilliwatts | None = None

    @property
    def key(self) -> str:
        return self.facility


class TargetSet(Observation, frozen=True, kw_only=True):
    """The most power that the cluster or a feed may draw in a period; without a power, the target
    of this name is withdrawn."""

    TYPE: ClassVar[str] = "target.set"
    TOKEN: ClassVar[str] = "target"
    REPLACES: ClassVar[str] = "target"
    target: Name
    power_mw: FacilityMilliwatts | None = None
    feed: Word = ""  # the value of the nodes' label joulie.io/feed; empty for the whole cluster
    starts_at: Nanoseconds = 0
    ends_at: Nanoseconds = 0
    because: Word = ""

    @property
    def key(self) -> str:
        return self.target


class CapsMeasured(Observation, frozen=True, kw_only=True):
    """The energy that pods of a class took to finish on capped nodes, compared with others, as a
    change in parts per thousand with a 95 % interval. Below 0, caps save energy."""

    TYPE: ClassVar[str] = "caps.measured"
    TOKEN: ClassVar[str] = "caps"
    REPLACES: ClassVar[str] = "caps"
    workload: WorkloadClass
    low_permille: Change
    mid_permille: Change
    high_permille: Change
    capped_pods: Count
    other_pods: Count
    from_ms: Count = 0
    to_ms: Count = 0

    @property
    def key(self) -> str:
        return self.workload
