"""GPU cards as API values: their holders, free memory and its fragmentation."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from joulie_answers.schema.requests import Gpus
from joulie_answers.schema.responses import Allocated, CardSums, Claimed, FreeGpus, Gpu
from joulie_bus.core.times import MS
from joulie_extender.gpu.models import Aliases, is_model
from joulie_extender.gpu.unusable import free_gpus
from joulie_projections.state.cards import (
    CardState,
    device_pods,
    free_mb,
    holder_of,
    is_idle,
    is_usable,
    owner_of,
    used_mb,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.twin.columns import TwinColumns


class CardCount(NamedTuple):
    on_nodes: int
    unhealthy: int


def count_cards(cluster_state: ClusterState) -> CardCount:
    healthy = [card.healthy for card in cluster_state.gpus.values() if card.node]
    return CardCount(len(healthy), healthy.count(False))


def cards_on(cluster_state: ClusterState, node: str) -> list[Gpu]:
    return [
        card_of(cluster_state, uuid, card)
        for uuid, card in sorted(cluster_state.gpus.items())
        if card.node == node
    ]


def chosen(
    cluster_state: ClusterState, query: Gpus, aliases: Aliases
) -> list[tuple[str, CardState]]:
    """The cards that a query selects, sorted by node; those of no node first."""
    found = [each for each in cluster_state.gpus.items() if _matches(each[1], query, aliases)]
    return sorted(found, key=lambda each: (each[1].node, each[0]))


def _matches(card: CardState, query: Gpus, aliases: Aliases) -> bool:
    return (
        (not query.node or card.node == query.node)
        and (not query.model or is_model(query.model, card.model, aliases))
        and (not query.free or (is_usable(card) and free_mb(card) > 0))
        and (not query.pod or any(query.pod in names for names in _names(card)))
    )


def _names(card: CardState) -> Iterator[tuple[str, ...]]:
    yield (owner_of(card),)
    yield device_pods(card)
    for uid, claim in card.claims.items():
        yield uid, claim.name, f"{claim.namespace}/{claim.name}"


def card_of(cluster_state: ClusterState, uuid: str, card: CardState) -> Gpu:
    node = cluster_state.nodes.get(card.node)
    return Gpu(
        uuid=uuid,
        node=card.node,
        node_present=node is not None and node.present,
        model=card.model,
        total_mb=card.total_mb,
        used_mb=used_mb(card),
        free_mb=_free_mb(card),
        allocated_mb=card.allocated_mb,
        claimed_mb=sum(claim.mb for claim in card.claims.values()),
        healthy=is_usable(card),
        idle=is_idle(card),
        nvlink_group=card.nvlink_group,
        owner=holder_of(card),
        pool=card.device.pool if card.device else "",
        taint=card.device.taint if card.device else "",
        allocated=[*_allocated(cluster_state, card)],
        power_limited_s=card.power_limited_s,
        heat_limited_s=card.heat_limited_s,
        claims=[
            Claimed(
                pod_uid=uid,
                namespace=claim.namespace,
                name=claim.name,
                mb=claim.mb,
                confirmed=claim.confirmed,
                expires_at_ms=claim.expires_at // MS,
            )
            for uid, claim in sorted(card.claims.items())
        ],
        updated_at_ms=card.at // MS,
    )


def _allocated(cluster_state: ClusterState, card: CardState) -> Iterator[Allocated]:
    """The ResourceClaims that have the card, and their pods."""
    for claim in card.device.claims if card.device else ():
        pods = [_pod_name(cluster_state, uid) for uid in claim.pods]
        name = f"{claim.namespace}/{claim.name}"
        yield Allocated(claim=name, pods=pods, share=claim.milli / 1000)


def _pod_name(cluster_state: ClusterState, uid: str) -> str:
    known = cluster_state.pods.get(uid)
    return f"{known.pod.namespace}/{known.pod.name}" if known else uid


def _free_mb(card: CardState) -> int:
    return free_mb(card) if is_usable(card) else 0


def sums_of(cards: Sequence[CardState]) -> CardSums:
    """Fragmentation: the share of all free memory that is on cards in use."""
    free = {at: _free_mb(card) for at, card in enumerate(cards)}
    whole = [at for at, card in enumerate(cards) if is_idle(card) and free[at]]
    holes = [at for at, card in enumerate(cards) if not is_idle(card) and free[at]]
    in_holes, in_all = sum(free[at] for at in holes), sum(free.values())
    return CardSums(
        cards=len(cards),
        nodes=len({card.node for card in cards}),
        whole=len(whole),
        holes=len(holes),
        unhealthy=sum(not is_usable(card) for card in cards),
        unread=sum(_is_unread(card) for card in cards),
        total_mb=sum(card.total_mb for card in cards),
        used_mb=sum(map(used_mb, cards)),
        free_mb=in_all,
        largest_free_mb=max(free.values(), default=0),
        fragmentation_pct=round(100 * in_holes / in_all, 1) if in_all else 0.0,
    )


def _is_unread(card: CardState) -> bool:
    return card.power_limited_s is None and card.heat_limited_s is None


def free_by_model(twin_columns: TwinColumns, aliases: Aliases) -> dict[str, FreeGpus]:
    found = free_gpus(twin_columns, aliases)
    return {name: FreeGpus(free=gpus.free, unusable=gpus.unusable) for name, gpus in found.items()}


def selects_all(query: Gpus) -> bool:
    return not (query.node or query.model or query.pod or query.free)


def uuids(cards: Iterable[tuple[str, CardState]]) -> set[str]:
    return {uuid for uuid, _ in cards}
