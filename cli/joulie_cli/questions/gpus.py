"""`joulie gpus`: GPU cards, the pods that use them, free memory and its fragmentation."""

import argparse
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from msgspec.structs import asdict

from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import history_of
from joulie_cli.wiring import Wiring
from joulie_extender.gpu.models import Aliases, aliases_of, is_model
from joulie_extender.gpu.unusable import free_gpus
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.state.cards import (
    UNKNOWN_HOLDER,
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
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.twin.columns import TwinColumns

SETTINGS = (CatalogSettings,)
NS_PER_MS = 1_000_000


class CardFilter(NamedTuple):
    """The filters of the command line; empty fields match every card."""

    node: str = ""
    model: str = ""
    pod: str = ""  # a uid, a name, or namespace/name
    is_free: bool = False


def run(args: argparse.Namespace, wires: Wiring) -> int:
    with history_of(wires) as history:
        cluster_state = history.cluster_state()
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    card_filter = CardFilter(args.node or "", args.model or "", args.pod or "", args.free)
    found = report(cluster_state, card_filter, aliases)
    found["idle_holders"] = _idle_holders(wires, {card["uuid"] for card in found["cards"]})
    show(args, found, as_text(found))
    return 0


def report(
    cluster_state: ClusterState, card_filter: CardFilter, aliases: Aliases = ()
) -> dict[str, Any]:
    cards = [
        _card(cluster_state, uuid, card)
        for uuid, card in sorted(
            cluster_state.gpus.items(), key=lambda item: (item[1].node, item[0])
        )
        if _matches(card, card_filter, aliases)
    ]
    found = {"cards": cards, "total": _total(cards)}
    if card_filter == CardFilter():
        by_model = free_gpus(TwinColumns.of_state(cluster_state), aliases)
        found["free_gpus"] = {model: gpus._asdict() for model, gpus in by_model.items()}
    return found


def _idle_holders(wires: Wiring, cards: Set[str]) -> list[dict[str, Any]]:
    """By the ledger; none where none runs."""
    with EnergyTable.readable(wires.data.database) as table:
        return [
            {**asdict(each), "power_w": each.power_mw / 1000}
            for each in table.holders()
            if each.card in cards
        ]


def _matches(card: CardState, card_filter: CardFilter, aliases: Aliases) -> bool:
    return (
        (not card_filter.node or card.node == card_filter.node)
        and (not card_filter.model or is_model(card_filter.model, card.model, aliases))
        and (not card_filter.is_free or (is_usable(card) and free_mb(card) > 0))
        and (not card_filter.pod or any(card_filter.pod in names for names in _names(card)))
    )


def _names(card: CardState) -> Iterator[tuple[str, ...]]:
    yield (owner_of(card),)
    yield device_pods(card)
    for uid, claim in card.claims.items():
        yield uid, claim.name, f"{claim.namespace}/{claim.name}"


def _card(cluster_state: ClusterState, uuid: str, card: CardState) -> dict[str, Any]:
    node = cluster_state.nodes.get(card.node)
    return {
        "uuid": uuid,
        "node": card.node,
        "is_node_there": node is not None and node.present,
        "model": card.model,
        "total_mb": card.total_mb,
        "used_mb": used_mb(card),
        "free_mb": free_mb(card) if is_usable(card) else 0,
        "healthy": is_usable(card),
        "idle": is_idle(card),
        "link": card.nvlink_group,
        "owner": holder_of(card),
        "pool": card.device.pool if card.device else "",
        "taint": card.device.taint if card.device else "",
        "allocated": [*_allocated(cluster_state, card)],
        "claims": [
            {
                "pod": f"{claim.namespace}/{claim.name}",
                "uid": uid,
                "mb": claim.mb,
                "confirmed": claim.confirmed,
            }
            for uid, claim in sorted(card.claims.items())
        ],
    }


def _allocated(cluster_state: ClusterState, card: CardState) -> Iterator[dict[str, Any]]:
    """The ResourceClaims that have the card, and their pods."""
    for claim in card.device.claims if card.device else ():
        pods = [_pod_name(cluster_state, uid) for uid in claim.pods]
        yield {"claim": f"{claim.namespace}/{claim.name}", "pods": pods, "milli": claim.milli}


def _pod_name(cluster_state: ClusterState, uid: str) -> str:
    known = cluster_state.pods.get(uid)
    return f"{known.pod.namespace}/{known.pod.name}" if known else uid


def _total(cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Fragmentation: the share of all free memory that is on cards in use."""
    free = _sum(cards, "free_mb")
    whole = [card for card in cards if card["idle"] and card["free_mb"]]
    holes = [card for card in cards if not card["idle"] and card["free_mb"]]
    return {
        "cards": len(cards),
        "nodes": len({card["node"] for card in cards}),
        "whole": len(whole),
        "holes": len(holes),
        "unhealthy": sum(not card["healthy"] for card in cards),
        "total_mb": _sum(cards, "total_mb"),
        "used_mb": _sum(cards, "used_mb"),
        "free_mb": free,
        "largest_free_mb": max((card["free_mb"] for card in cards), default=0),
        "fragmentation_pct": round(100 * _sum(holes, "free_mb") / free, 1) if free else 0.0,
    }


def _sum(cards: Iterable[dict[str, Any]], what: str) -> int:
    return sum(card[what] for card in cards)


def as_text(found: dict[str, Any]) -> str:
    total = found["total"]
    lines = _table([_HEAD, *map(_cells, found["cards"])]) if found["cards"] else []
    lines.append(
        f"{total['cards']} card(s) on {total['nodes']} node(s): {total['whole']} whole, "
        f"{total['holes']} shared with room, {total['unhealthy']} unhealthy; "
        f"{total['free_mb']} MB free, at most {total['largest_free_mb']} MB on one card, "
        f"{total['fragmentation_pct']:g} % of it on shared cards"
    )
    lines += [
        f"{model}: {gpus['free']:.2f} GPUs free, {gpus['unusable']:.2f} of them of no use to any "
        "pod like those that asked for GPUs before"
        for model, gpus in found.get("free_gpus", {}).items()
        if gpus["unusable"]
    ]
    lines += [
        f"IDLE: {', '.join(each['pods'])} holds {each['card']} on {each['node']} without work "
        f"since {shown(each['since_ms'] * NS_PER_MS)}, at {each['power_w']:.0f} W"
        for each in found.get("idle_holders", ())
    ]
    return "\n".join(lines)


_HEAD = ("node", "card", "model", "MB used", "of", "link", "used by")
_NUMBERS = {"MB used", "of"}


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell: the UUIDs of real cards have 40 characters."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in _NUMBERS else "<" for name in _HEAD]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _cells(card: dict[str, Any]) -> tuple[str, ...]:
    node = card["node"] or "gone"
    where = node if card["is_node_there"] or not card["node"] else f"{node} (gone)"
    sizes = (str(card["used_mb"]), str(card["total_mb"]))
    return (where, card["uuid"], card["model"], *sizes, str(card["link"]), _users(card))


def _users(card: dict[str, Any]) -> str:
    claims = [
        f"{claim['pod']} ({claim['mb']} MB{'' if claim['confirmed'] else ', being bound'})"
        for claim in card["claims"]
    ]
    claims += [
        f"{', '.join(each['pods']) or 'no pod'} (claim {each['claim']}{_part(each['milli'])})"
        for each in card["allocated"]
    ]
    if card["taint"]:
        claims.append(f"tainted: {card['taint']}")
    if card["allocated"]:
        return "; ".join(claims)
    if card["owner"] and card["owner"] not in {claim["uid"] for claim in card["claims"]}:
        is_named = card["owner"] != UNKNOWN_HOLDER
        claims.append(
            f"{card['owner'] if is_named else 'a pod that is not named'}, without a claim"
        )
    return "; ".join([*claims, *([] if card["healthy"] or card["taint"] else ["unhealthy"])])


def _part(milli: int) -> str:
    return "" if milli == 1000 else f", {milli / 10:g} % of the card"
