"""The plans of the operator. The events of one plan are written in one batch."""

from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import META, Finite, PlanStep, Values
from joulie_bus.events.bounds import (
    MOST_VALUES,
    Count,
    Milliwatts,
    Name,
    Nanoseconds,
    Percent,
    Text,
    Word,
)

Profile = Literal["performance", "eco"]
PlanInputs = Annotated[dict[Word, Finite], msgspec.Meta(max_length=MOST_VALUES)]


class PlanMade(PlanStep, frozen=True, kw_only=True):
    """The reason for the node events of its batch, and every input needed to recompute the plan.

    The first event of the batch, written under compare-and-set. A plan too large for one batch is
    split into parts; each part carries the numbers of the whole plan.
    """

    TYPE: ClassVar[str] = "plan.made"
    TOKEN: ClassVar[str] = META
    plan: Word
    policy: Word
    view: Count  # the position of the view that the plan is based on
    nodes: Count
    performance: Count
    changes: Count
    inputs: PlanInputs = {}
    because: Text = ""
    now: Nanoseconds = 0  # the only clock that the plan used
    code: Word = ""  # version of the program, and of an external policy
    settings: Values = {}  # a setting that is absent is "none"
    pods_known: bool = True  # whether it is known which pods run on which node
    dry_run: bool = False  # nothing was changed; the plan shows what would have been
    part: Count = 1
    parts: Count = 1

    @property
    def key(self) -> str:
        return META


class ProfileAssigned(PlanStep, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.profile-assigned"
    plan: Word
    node: Name
    profile: Profile
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class DrainingBegun(PlanStep, frozen=True, kw_only=True):
    """The node is to become eco. Performance pods still run on it, so its caps stay."""

    TYPE: ClassVar[str] = "plan.draining-begun"
    plan: Word
    node: Name
    performance_pods: Count
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class CapsSet(PlanStep, frozen=True, kw_only=True):
    """Absent means no cap; a number never stands for "none".

    Watts take precedence; the percentage is the same cap relative to the maximum.
    """

    TYPE: ClassVar[str] = "plan.caps-set"
    plan: Word
    node: Name
    cpu_cap_pct: Percent | None = None
    gpu_cap_pct: Percent | None = None
    cpu_cap_mw_per_socket: Milliwatts | None = None
    gpu_cap_mw: Milliwatts | None = None  # per card
    # Of each card that pods of class standard alone hold, where it is lower than that of the node.
    standard_gpu_cap_pct: Percent | None = None

    @property
    def key(self) -> str:
        return self.node


class TransitionCompleted(PlanStep, frozen=True, kw_only=True):
    """The node has its new profile; the pods that delayed the transition are gone."""

    TYPE: ClassVar[str] = "plan.transition-completed"
    plan: Word
    node: Name
    profile: Profile
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class SleepOrdered(PlanStep, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.sleep-ordered"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class EvictionOrdered(PlanStep, frozen=True, kw_only=True):
    """The pods of a node that was ordered to sleep are evicted, if each of them may be."""

    TYPE: ClassVar[str] = "plan.eviction-ordered"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class PlacementClosed(PlanStep, frozen=True, kw_only=True):
    """The node gets no more pods of class standard."""

    TYPE: ClassVar[str] = "plan.placement-closed"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class PlacementOpened(PlanStep, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.placement-opened"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node


class WakeOrdered(PlanStep, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "plan.wake-ordered"
    plan: Word
    node: Name
    because: Text = ""

    @property
    def key(self) -> str:
        return self.node
