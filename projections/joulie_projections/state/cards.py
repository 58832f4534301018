"""The state of one GPU card: its properties and the claims on its memory.

Sightings and claims arrive in two streams, in any order: a card that is claimed before it is seen,
or removed while it is claimed, is a row without a `node`.
"""

from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from joulie_bus.events import (
    CardClaimed,
    CardFact,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    DeviceGone,
    DeviceSeen,
    GpuGone,
    GpuSeen,
)

_SECOND = 1_000_000_000
DRA = "dra"  # the source of a card that only DRA shows
AGENT: Literal["agent"] = "agent"
UNKNOWN_HOLDER = "?"  # the card is in use, and its resource does not name the pod


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    namespace: str
    name: str
    node: str
    mb: int
    expires_at: int  # by the broker's clock; unused once confirmed
    confirmed: bool = False


class CardState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    at: int  # when the broker stored the newest fact about it
    node: str = ""  # empty until the card is seen, and while it is contested
    contested: tuple[str, ...] = ()  # the nodes whose agents list it, if they are several
    model: str = ""
    total_mb: int = 0
    allocated_mb: int = 0
    healthy: bool = False
    nvlink_group: str = ""
    owner: str = ""
    holder: str = ""  # as in `GpuSeen`
    source: str = ""
    claims: dict[str, Claim] = {}  # by pod uid; several pods can share a card's memory
    device: DeviceSeen | None = None  # as DRA shows it: kube-scheduler gives the card out
    power_limited_s: int | None = None  # as in `GpuSeen`
    heat_limited_s: int | None = None


def after_sighting(card: CardState | None, fact: CardFact, at: int) -> CardState | None:
    """The card after a sighting. The newest sighting wins, whatever its source; claims are kept."""
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
                device=card.device if card is not None else None,
                power_limited_s=fact.power_limited_s,
                heat_limited_s=fact.heat_limited_s,
            )
        case GpuGone():
            device = card.device if card is not None else None
            return _from_device(device, claims, at) if device is not None else _unseen(card, at)
        case _:
            assert_never(fact)


def is_elsewhere(card: CardState | None, node: str) -> bool:
    """Whether a `GPU` resource or a driver of DRA has the card on another node: what an agent says
    of it does not count."""
    if card is None:
        return False
    on = card.device.node if card.device is not None and card.device.node else ""
    if card.source not in ("", AGENT):
        on = on or card.node
    return on not in ("", node)


def after_listing(card: CardState | None, seen: GpuSeen, at: int) -> CardState | None:
    """The card after the agent of a node lists it. While agents of several nodes list one card, it
    is on none of them: no agent takes cards of others, whichever comes first and whether or not
    the Node objects are there. A driver of DRA that publishes it settles where it is."""
    if card is None:
        return after_sighting(card, seen, at)
    listed = {*card.contested, seen.node}
    if card.source == AGENT and card.node:
        listed.add(card.node)
    if len(listed) == 1 or (card.device is not None and card.device.node):
        return after_sighting(card, seen, at)
    return CardState(at=at, claims=card.claims, device=card.device, contested=tuple(sorted(listed)))


def after_unlisting(card: CardState | None, node: str, at: int) -> CardState | None:
    """The card after the agent of a node lists it no more. If one agent is left that does, the
    card is where it reports it next."""
    if card is None:
        return None
    if card.contested:
        left = tuple(each for each in card.contested if each != node)
        return _unseen(replace(card, contested=left if len(left) > 1 else ()), at)
    if card.source not in ("", AGENT) or card.node not in ("", node):
        return card
    return after_sighting(card, GpuGone(uuid=""), at)


def _unseen(card: CardState | None, at: int) -> CardState | None:
    """What is kept of a card that is on no node."""
    if card is None or not (card.claims or card.contested):
        return None
    return CardState(at=at, claims=card.claims, contested=card.contested)


def after_device(
    card: CardState | None, fact: DeviceSeen | DeviceGone, at: int
) -> CardState | None:
    """The card after a fact of DRA. What an agent or a resource reports about the card itself is
    kept, whichever came first.
    """
    claims = card.claims if card is not None else {}
    is_seen_by_others = card is not None and card.source not in ("", DRA)
    match fact:
        case DeviceSeen():
            if card is not None and is_seen_by_others:
                return replace(card, at=at, device=fact)
            return _from_device(fact, claims, at)
        case DeviceGone():
            if card is not None and is_seen_by_others:
                return replace(card, at=at, device=None)
            return _unseen(card, at)
        case _:
            assert_never(fact)


def _from_device(device: DeviceSeen, claims: dict[str, Claim], at: int) -> CardState:
    return CardState(
        at=at,
        node=device.node,
        model=device.model,
        total_mb=device.total_mb,
        healthy=True,
        source=DRA,
        claims=claims,
        device=device,
    )


def after_claim(card: CardState | None, fact: ClaimEvent, at: int) -> CardState | None:
    """The card after a claim event. A pod has at most one claim on a card; confirming or releasing
    a claim that does not exist has no effect.

    The extender wrote the claim by compare-and-set after reading all earlier ones, so the fold does
    not validate it.
    """
    card = card or CardState(at=at)
    known = card.claims.get(fact.pod_uid)
    others = {uid: claim for uid, claim in card.claims.items() if uid != fact.pod_uid}
    match fact:
        case CardClaimed():
            claims = others | {fact.pod_uid: _claim(fact, at)}
        case ClaimConfirmed():
            confirmed = replace(known, confirmed=True) if known else None
            claims = others | ({fact.pod_uid: confirmed} if confirmed else {})
        case ClaimReleased():
            claims = others
        case _:
            assert_never(fact)
    is_known = card.node or claims or card.device or card.contested
    return replace(card, at=at, claims=claims) if is_known else None


def _claim(made: CardClaimed, at: int) -> Claim:
    return Claim(
        namespace=made.namespace,
        name=made.name,
        node=made.node,
        mb=made.mb,
        expires_at=at + made.expires_s * _SECOND,
    )


# --- free memory ------------------------------------------------------------------------------

NO_PODS: frozenset[str] = frozenset()


def used_mb(card: CardState, gone: frozenset[str] = NO_PODS) -> int:
    """Memory in use: observed plus claimed, counted once where the owner holds the claim.

    Pods in `gone` count as ended, together with the memory that was observed for them.
    """
    claims = {uid: claim for uid, claim in card.claims.items() if uid not in gone}
    if milli := allocated_milli(card, gone):
        return min(card.total_mb, -(-milli * card.total_mb // 1000))
    claimed_mb = sum(claim.mb for claim in claims.values())
    seen_mb, owner = _seen_mb(card, gone), owner_of(card)
    owned = owner in claims if owner else any(c.confirmed for c in claims.values())
    return max(seen_mb, claimed_mb) if owned else seen_mb + claimed_mb


def free_mb(card: CardState, gone: frozenset[str] = NO_PODS) -> int:
    """Memory that a new pod can claim; 0 if the owner has no claim, because its usage and its
    ability to share are unknown."""
    if allocated_milli(card, gone):
        return 0
    owner = owner_of(card)
    if owner and owner not in card.claims and owner not in gone:
        return 0
    return max(0, card.total_mb - used_mb(card, gone))


def is_idle(card: CardState, gone: frozenset[str] = NO_PODS) -> bool:
    """Reports whether no pod owns the card or has a claim on it."""
    if allocated_milli(card, gone):
        return False
    owner = owner_of(card)
    return card.claims.keys() <= gone and (not owner or owner in gone)


def is_usable(card: CardState) -> bool:
    """Whether new pods may get the card."""
    return card.healthy and not (card.device is not None and card.device.taint)


def allocated_milli(card: CardState, gone: frozenset[str] = NO_PODS) -> int:
    """Thousandths of the card that DRA has allocated. A claim without pods is allocated too."""
    claims = card.device.claims if card.device is not None else ()
    if not claims:
        return 0
    held = (claim for claim in claims if not claim.pods or not gone.issuperset(claim.pods))
    return sum(claim.milli for claim in held)


def device_pods(card: CardState) -> tuple[str, ...]:
    """The uids of the pods to whose ResourceClaims the card is allocated."""
    if card.device is None:
        return ()
    return tuple(uid for claim in card.device.claims for uid in claim.pods)


def holder_of(card: CardState) -> str:
    """The owner, or the first pod that DRA names."""
    return owner_of(card) or next(iter(device_pods(card)), "")


def owner_of(card: CardState) -> str:
    """The uid of the pod that owns the card; empty if none does.

    A resource without uids names the pod: the name is matched against the claims. A resource that
    only reports the card as in use refers to the confirmed claim, if there is one. The name of a
    pod without a claim is returned in place of its unknown uid and equals no uid.
    """
    if card.owner or not card.holder:
        return card.owner
    is_nameless = card.holder == UNKNOWN_HOLDER
    for uid, claim in sorted(card.claims.items()):
        if claim.confirmed if is_nameless else f"{claim.namespace}/{claim.name}" == card.holder:
            return uid
    return card.holder


def _seen_mb(card: CardState, gone: frozenset[str]) -> int:
    """Observed memory. It belongs to the owner or, without one, to the pods with claims."""
    owner = owner_of(card)
    is_gone = owner in gone if owner else bool(card.claims) and card.claims.keys() <= gone
    return 0 if is_gone else card.allocated_mb
