"""Cards as a table, their sums, and those that are held without work."""

from collections.abc import Sequence

from joulie_answers.schema.responses import Gpu, GpuList
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.core.times import utc_text
from joulie_projections.state.cards import UNKNOWN_HOLDER

_HEAD = ("node", "card", "model", "MB used", "of", "link", "used by")
_SLOWED = ("slowed by power", "by heat")  # only where an agent reports it
NO_CARD = "No GPU card is known: no agent, device plugin or driver of DRA has reported one."
NONE_MATCHES = "No card matches. Remove a filter, or list all: `joulie gpus`."
_NUMBERS = {"MB used", "of", *_SLOWED}


def gpus_text(found: GpuList) -> str:
    if not found.total:
        is_all = found.free_gpus is not None  # they are counted among all cards only
        return NO_CARD if is_all else NONE_MATCHES
    sums = found.sums
    lines = [
        f"{sums.cards} card(s) on {sums.nodes} node(s): {sums.whole} whole, "
        f"{sums.holes} shared with room, {sums.unhealthy} unhealthy; "
        f"{sums.free_mb} MB free, at most {sums.largest_free_mb} MB on one card, "
        f"{sums.fragmentation_pct:g} % of it on shared cards"
    ]
    lines += [
        f"{model}: {gpus.free:.2f} GPUs free, {gpus.unusable:.2f} of them of no use to any "
        "pod like those that asked for GPUs before"
        for model, gpus in (found.free_gpus or {}).items()
        if gpus.unusable
    ]
    lines += [
        f"IDLE: {', '.join(each.pods)} holds {each.uuid} on {each.node} without work "
        f"since {utc_text(each.since_ms)}, at {each.power_w:.0f} W"
        for each in found.idle or ()
    ]
    return TextWithTables.of([_table(found.items), *lines])


def _table(cards: Sequence[Gpu]) -> TextTable:
    counts = [(card.power_limited_s, card.heat_limited_s) for card in cards]
    is_known = any(each != (None, None) for each in counts)
    *head, users = _HEAD
    rows = []
    for card, slowed in zip(cards, counts, strict=True):
        *cells, used_by = _cells(card)
        rows.append((*cells, *(map(_duration, slowed) if is_known else ()), used_by))
    return TextTable((*head, *(_SLOWED if is_known else ()), users), rows, _NUMBERS)


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _cells(card: Gpu) -> tuple[str, ...]:
    node = card.node or "gone"
    where = node if card.node_present or not card.node else f"{node} (gone)"
    sizes = (str(card.used_mb), str(card.total_mb))
    return (where, card.uuid, card.model, *sizes, card.nvlink_group, _users(card))


def _users(card: Gpu) -> str:
    claims = [
        f"{claim.namespace}/{claim.name} ({claim.mb} MB"
        f"{'' if claim.confirmed else ', being bound'})"
        for claim in card.claims
    ]
    claims += [
        f"{', '.join(each.pods) or 'no pod'} (claim {each.claim}{_part(each.share)})"
        for each in card.allocated
    ]
    if card.taint:
        claims.append(f"tainted: {card.taint}")
    if card.allocated:
        return "; ".join(claims)
    if card.owner and card.owner not in {claim.pod_uid for claim in card.claims}:
        is_named = card.owner != UNKNOWN_HOLDER
        claims.append(f"{card.owner if is_named else 'a pod that is not named'}, without a claim")
    return "; ".join([*claims, *([] if card.healthy or card.taint else ["unhealthy"])])


def _part(share: float) -> str:
    return "" if share == 1 else f", {share * 100:g} % of the card"
