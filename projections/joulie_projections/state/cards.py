"""What is believed about one GPU card: what it is, and who has reserved what of it. Pure.

Sightings and claims come in two streams, so either may be first: a card that is claimed before it
is seen, or gone while it is claimed, stays as a row without a `node`.
"""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from joulie_bus.events import (
    CardClaimed,
    CardFact,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    GpuGone,
    GpuSeen,
)

_SECOND = 1_000_000_000
UNKNOWN_HOLDER = "?"  # the card is taken, and its resource does not name the pod


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    namespace: str
    name: str
    node: str
    mb: int
    expires_at: int  # by the broker's clock; nothing to a confirmed claim
    confirmed: bool = False


class CardState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    at: int  # when the broker stored the newest fact about it
    node: str = ""  # "" while nobody has shown the card
    model: str = ""
    total_mb: int = 0
    allocated_mb: int = 0
    healthy: bool = False
    nvlink_group: str = ""
    owner: str = ""
    holder: str = ""  # as `GpuSeen` has it
    source: str = ""
    claims: dict[str, Claim] = {}  # by the pod's uid: a card's memory can be shared


def after_sighting(card: CardState | None, fact: CardFact, at: int) -> CardState | None:
    """The newest sighting counts, whoever made it. Claims are not its business."""
    claims = card.claims if card is not None else {}
    match fact:
        case GpuSeen():
            return CardState(
                at=at,
                node=fact.node,
                model=fact.model,
                total_mb=fact.total_mb,
                allocated_mb=fact.allocated_mb,
                healthy=fact.healthy,
                nvlink_group=fact.nvlink_group,
                owner=fact.owner,
                holder=fact.holder,
                source=fact.source,
                claims=claims,
            )
        case GpuGone():
            return CardState(at=at, claims=claims) if claims else None
        case _:
            assert_never(fact)


def after_claim(card: CardState | None, fact: ClaimEvent, at: int) -> CardState | None:
    """A pod has at most one claim on a card; confirming or releasing what is not there is nothing.

    Whoever wrote the claim had read all before it (compare-and-set), so it is not questioned here.
    """
    card = card or CardState(at=at)
    known = card.claims.get(fact.pod_uid)
    others = {uid: claim for uid, claim in card.claims.items() if uid != fact.pod_uid}
    match fact:
        case CardClaimed():
            claims = others | {fact.pod_uid: _claim(fact, at)}
        case ClaimConfirmed():
            held = replace(known, confirmed=True) if known else None
            claims = others | ({fact.pod_uid: held} if held else {})
        case ClaimReleased():
            claims = others
        case _:
            assert_never(fact)
    return replace(card, at=at, claims=claims) if card.node or claims else None


def _claim(made: CardClaimed, at: int) -> Claim:
    return Claim(
        namespace=made.namespace,
        name=made.name,
        node=made.node,
        mb=made.mb,
        expires_at=at + made.expires_s * _SECOND,
    )


# --- what is left of a card -------------------------------------------------------------------

NO_PODS: frozenset[str] = frozenset()


def used_mb(card: CardState, gone: frozenset[str] = NO_PODS) -> int:
    """What is seen of it and what is claimed, counted once where one is the other.

    `gone` are pods that count as if they had ended, and whatever was seen with them.
    """
    claims = {uid: claim for uid, claim in card.claims.items() if uid not in gone}
    claimed_mb = sum(claim.mb for claim in claims.values())
    seen_mb, owner = _seen_mb(card, gone), owner_of(card)
    owned = owner in claims if owner else any(c.confirmed for c in claims.values())
    return max(seen_mb, claimed_mb) if owned else seen_mb + claimed_mb


def free_mb(card: CardState, gone: frozenset[str] = NO_PODS) -> int:
    """Nothing is left beside a pod that has the card and has claimed nothing of it: how much of
    the card it uses, and whether it can share, is not known."""
    owner = owner_of(card)
    if owner and owner not in card.claims and owner not in gone:
        return 0
    return max(0, card.total_mb - used_mb(card, gone))


def is_idle(card: CardState, gone: frozenset[str] = NO_PODS) -> bool:
    """No pod has the card, and none has claimed any of it."""
    owner = owner_of(card)
    return card.claims.keys() <= gone and (not owner or owner in gone)


def owner_of(card: CardState) -> str:
    """The uid of the pod that has the card; "" if none has.

    A resource without uids names the pod, which is one with a claim or a stranger. A resource that
    says only that the card is taken means the confirmed claim, if there is one. The name of a
    stranger stands for the uid that is not known: it is in no set of uids.
    """
    if card.owner or not card.holder:
        return card.owner
    is_nameless = card.holder == UNKNOWN_HOLDER
    for uid, claim in sorted(card.claims.items()):
        if claim.confirmed if is_nameless else f"{claim.namespace}/{claim.name}" == card.holder:
            return uid
    return card.holder


def _seen_mb(card: CardState, gone: frozenset[str]) -> int:
    """What is seen on a card is its owner's; without one, that of the pods that have claimed it."""
    owner = owner_of(card)
    is_theirs = owner in gone if owner else bool(card.claims) and card.claims.keys() <= gone
    return 0 if is_theirs else card.allocated_mb
