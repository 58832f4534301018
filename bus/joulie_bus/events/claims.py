"""Claims on the memory of a card, written under compare-and-set."""

from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import ClaimStep
from joulie_bus.events.bounds import CardMb, Name, Uid

ReleaseReason = Literal["bound-elsewhere", "finished", "gone", "expired", "moved", "not-bound"]
Lifetime = Annotated[int, msgspec.Meta(ge=1, le=86_400)]  # seconds; at most a day


class CardClaimed(ClaimStep, frozen=True, kw_only=True):
    """A pod reserves memory of a card. Compare-and-set prevents giving a card out twice."""

    TYPE: ClassVar[str] = "claim.made"
    card: Name
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    mb: CardMb
    expires_s: Lifetime  # counted from when the broker stored it, until the claim is confirmed

    @property
    def key(self) -> str:
        return self.card


class ClaimConfirmed(ClaimStep, frozen=True, kw_only=True):
    """The pod was observed bound: the claim lasts until it is released."""

    TYPE: ClassVar[str] = "claim.confirmed"
    card: Name
    pod_uid: Uid

    @property
    def key(self) -> str:
        return self.card


class ClaimReleased(ClaimStep, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "claim.released"
    card: Name
    pod_uid: Uid
    why: ReleaseReason

    @property
    def key(self) -> str:
        return self.card
