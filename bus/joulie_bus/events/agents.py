"""What the agent of a node found there, and what became of caps: the agent's side of the bus."""

from typing import Annotated, ClassVar

import msgspec

from joulie_bus.events.base import Family, FromNode
from joulie_bus.events.bounds import (
    MOST_READ_CARDS,
    CardMb,
    CardName,
    Count,
    Holder,
    Milliwatts,
    Name,
    Percent,
    Text,
    Uid,
    Word,
)
from joulie_bus.events.nodes import HardwareDiscovered


class CardRead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One card. Its holder is the pod to which the kubelet gave it: by uid, or by name if the uid
    is not known; "?" stands for several pods."""

    uuid: CardName
    model: Word
    total_mb: CardMb
    problem: Word = ""  # why it should get no work; empty for a healthy card
    link_group: Word = ""
    owner: Uid = ""
    holder: Holder = ""
    # Whole seconds since the driver was loaded; None: it does not count them.
    power_limited_s: Count | None = None  # slowed down by its power limit
    heat_limited_s: Count | None = None  # slowed down by heat


CardWatts = Annotated[dict[Name, Milliwatts], msgspec.Meta(max_length=MOST_READ_CARDS)]
MOST_SHARING = 256  # pods of one card
OrderedCards = Annotated[dict[Name, Milliwatts | None], msgspec.Meta(max_length=MOST_READ_CARDS)]
CardsRead = Annotated[tuple[CardRead, ...], msgspec.Meta(max_length=MOST_READ_CARDS)]


class InventoryRead(FromNode, frozen=True, kw_only=True):
    """The hardware and all cards of a node. A card of the node that is not listed is gone."""

    TYPE: ClassVar[str] = "inventory.read"
    REPLACES: ClassVar[str] = "inventory"
    node: Name
    hardware: HardwareDiscovered
    cards: CardsRead = ()

    @property
    def key(self) -> str:
        return self.node


class SafeCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The safe cap of a single card. It holds while no other pods than these have the card."""

    mw: Milliwatts
    pods: Annotated[tuple[Holder, ...], msgspec.Meta(max_length=MOST_SHARING)]
    device: Holder = ""  # the card as DRA names it: driver/pool/device


SafeCards = Annotated[dict[Name, SafeCard], msgspec.Meta(max_length=MOST_READ_CARDS)]


class CapOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caps of one node, as the operator publishes them again and again while they hold.

    A live message, never stored. Absent means no cap. Without a new one, the writer on the node
    sets the safe caps for `safe_s` seconds from this one on, and gives the limits back then.
    """

    node: Name
    plan: Word
    view: Count  # the position of the view that it rests on
    cpu_mw_per_socket: Milliwatts | None = None
    gpu_mw: Milliwatts | None = None  # per card
    safe_cpu_mw_per_socket: Milliwatts | None = None
    safe_gpu_mw: Milliwatts | None = None
    safe_s: Count = 0
    card_mw: OrderedCards = {}  # by uuid, in place of `gpu_mw`; None is no cap
    safe_cards: SafeCards = {}  # by uuid, in place of `safe_gpu_mw`
    clock_pct: Percent | None = None  # of the highest clock of each card; absent: not locked


class CapsApplied(FromNode, frozen=True, kw_only=True):
    """The limits of a node that its writer set, as the hardware shows them. Absent means that no
    limit of this kind is the writer's: the hardware draws up to its own limit. Cards that do not
    all have the same cap are listed one by one, and a card that is not listed has none."""

    TYPE: ClassVar[str] = "caps.applied"
    REPLACES: ClassVar[str] = "caps"
    node: Name
    plan: Word = ""
    cpu_mw_per_socket: Milliwatts | None = None
    gpu_mw: Milliwatts | None = None
    card_mw: CardWatts = {}  # by uuid
    clock_mhz: Count | None = None  # the highest clock to which all cards are locked

    @property
    def key(self) -> str:
        return self.node


class CapsSettable(FromNode, frozen=True, kw_only=True):
    """Which limits of a node its writer can set, with or without an order. The writer repeats it,
    and takes it back when it ends: it counts for a few minutes only."""

    TYPE: ClassVar[str] = "caps.settable"
    FAMILY: ClassVar[Family] = Family.AGENT  # of the writer on the node alone
    REPLACES: ClassVar[str] = "settable"
    node: Name
    cpu: bool = False  # the limits of all processors
    gpu: bool = False  # the limits of all cards
    cards: bool = False  # also to another value for each card
    clocks: bool = False  # the clocks of all cards
    because: Text = ""  # why limits cannot be set, one reason a line

    @property
    def key(self) -> str:
        return self.node


class CapsRefused(FromNode, frozen=True, kw_only=True):
    """Limits that are not as ordered, and why; one reason for each limit that is named."""

    TYPE: ClassVar[str] = "caps.refused"
    REPLACES: ClassVar[str] = "refusals"
    node: Name
    plan: Word = ""
    because: Text

    @property
    def key(self) -> str:
        return self.node
