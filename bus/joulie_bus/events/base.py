"""What every event has, and the number types that several events share.

A class says where its event travels and whether a newer one replaces it. Subjects, streams, the
rights of senders and the order of late messages follow from that.
"""

import sys
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from joulie_bus.events.bounds import MOST_VALUES, Text, Word

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
META = "_meta"  # in place of a node, in the subject of a whole plan
PROJECTOR = "projector"  # in place of a replica, in the subject of the projector's entries
Values = Annotated[dict[Word, Finite | Text | bool], msgspec.Meta(max_length=MOST_VALUES)]


class Family(StrEnum):
    """The second token of a subject. Roles have permissions per family; a family has one stream."""

    TEL = "tel"
    AGENT = "agent"
    OBS = "obs"
    PLAN = "plan"
    CLAIM = "claim"
    DEC = "dec"
    HEADS = "heads"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`TYPE` and `VERSION` identify it on the wire. Events with the same `key` have an order."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    FAMILY: ClassVar[Family]  # of its subject
    TOKEN: ClassVar[str] = ""  # the fixed part of its subject after the cluster, if it has one
    # The name of the facts about one key of which only the newest counts: an older one that arrives
    # later is not folded. Empty: each one counts.
    REPLACES: ClassVar[str] = ""

    @property
    def key(self) -> str:
        raise NotImplementedError


class FromNode(Event, frozen=True, kw_only=True):
    """What is measured on a node, by its agent or by a program for many nodes."""

    FAMILY: ClassVar[Family] = Family.TEL


class Observation(Event, frozen=True, kw_only=True):
    """What was seen of one thing. Its subject names the kind of thing (`TOKEN`) and its key."""

    FAMILY: ClassVar[Family] = Family.OBS


class PlanStep(Event, frozen=True, kw_only=True):
    FAMILY: ClassVar[Family] = Family.PLAN


class ClaimStep(Event, frozen=True, kw_only=True):
    FAMILY: ClassVar[Family] = Family.CLAIM


class LoggedEvent(Event, frozen=True, kw_only=True):
    """An entry of the decision log. Without a `TOKEN`, its subject names the replica."""

    FAMILY: ClassVar[Family] = Family.DEC
