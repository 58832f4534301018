"""What the agent of a node found there: its hardware and its cards."""

from typing import Annotated, ClassVar

import msgspec

from joulie_bus.events.base import Event
from joulie_bus.events.bounds import (
    MOST_READ_CARDS,
    CardMb,
    Holder,
    Name,
    Uid,
    Word,
)
from joulie_bus.events.nodes import HardwareDiscovered


class CardRead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One card. Its holder is the pod to which the kubelet gave it: by uid, or by name if the uid
    is not known; "?" stands for several pods."""

    uuid: Name
    model: Word
    total_mb: CardMb
    problem: Word = ""  # why it should get no work; empty for a healthy card
    link_group: Word = ""
    owner: Uid = ""
    holder: Holder = ""


CardsRead = Annotated[tuple[CardRead, ...], msgspec.Meta(max_length=MOST_READ_CARDS)]


class InventoryRead(Event, frozen=True, kw_only=True):
    """The hardware and all cards of a node. A card of the node that is not listed is gone."""

    TYPE: ClassVar[str] = "inventory.read"
    node: Name
    hardware: HardwareDiscovered
    cards: CardsRead = ()

    @property
    def key(self) -> str:
        return self.node
