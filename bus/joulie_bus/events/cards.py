"""Facts about GPU cards."""

from typing import ClassVar, Literal

from joulie_bus.events.base import Event
from joulie_bus.events.bounds import CardMb, Holder, Name, Uid, Word

CardSource = Literal["agent", "resource"]


class GpuSeen(Event, frozen=True, kw_only=True):
    """One whole card, as an agent or the `GPU` resource reports it."""

    TYPE: ClassVar[str] = "gpu.seen"
    uuid: Name
    node: Name
    model: Word
    total_mb: CardMb
    allocated_mb: CardMb = 0
    healthy: bool = True
    nvlink_group: Word = ""  # cards of a node with the same group are linked; "": no link
    owner: Uid = ""  # uid of the pod that holds the card
    holder: Holder = ""  # namespace/name of that pod if the uid is not known; "?": neither is
    source: CardSource = "resource"

    @property
    def key(self) -> str:
        return self.uuid


class GpuGone(Event, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "gpu.gone"
    uuid: Name

    @property
    def key(self) -> str:
        return self.uuid
