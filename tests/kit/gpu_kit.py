"""GPU cards, pods that request them, and a reference implementation of the GPU rules."""

import re
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from hypothesis import strategies as st

from bus_kit import NOON
from joulie_bus.events import GpuAsk, PodAsk
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import NodeState
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

A100 = "NVIDIA-A100-SXM4-40GB"
MB = 40_960


def a_card(  # noqa: PLR0913
    node: str = "n0",
    *,
    model: str = A100,
    mb: int = MB,
    used_mb: int = 0,
    healthy: bool = True,
    group: str = "",
    owner: str = "",
    holder: str = "",
    claims: Mapping[str, Claim] = {},
) -> CardState:
    return CardState(
        at=NOON,
        node=node,
        model=model,
        total_mb=mb,
        allocated_mb=used_mb,
        healthy=healthy,
        nvlink_group=group,
        owner=owner,
        holder=holder,
        claims=dict(claims),
    )


def a_claim(mb: int = MB, node: str = "n0", *, confirmed: bool = False) -> Claim:
    return Claim(namespace="team", name="p", node=node, mb=mb, expires_at=NOON, confirmed=confirmed)


def wanting(uid: str = "p", *, cards: int = 1, team: str = "", **gpu: object) -> PodAsk:
    """A pod that requests whole cards; `model`, `vram_mb`, `topology`, `share_milli` say which."""
    asked = GpuAsk(**gpu)  # type: ignore[arg-type]
    return PodAsk(
        uid=uid,
        namespace="team",
        name=uid,
        gpu_milli=cards * 1000 or asked.share_milli,
        gpu_cards=cards,
        gpu=asked,
        team=team,
    )


def twin_columns_of(
    cards: Mapping[str, CardState], nodes: Iterable[str] = ("n0", "n1", "n2")
) -> TwinColumns:
    there = {name: node(at) for at, name in enumerate(nodes)}
    twin_columns = TwinColumns.of(there, 0)
    return twin_columns.with_cards(Cards.of(cards, twin_columns.rows))


def node(ordinal: int, *, present: bool = True) -> NodeState:
    return NodeState(ordinal=ordinal, at=NOON, present=present)


# --- random ones ------------------------------------------------------------------------------

_MODELS = (A100, "NVIDIA A10", "Tesla T4")
_CLAIMS = st.dictionaries(
    st.sampled_from("pqr"),
    st.builds(a_claim, st.sampled_from([1000, 10_000, MB]), confirmed=st.booleans()),
    max_size=2,
)
CARDS = st.dictionaries(
    st.sampled_from([f"g{number}" for number in range(14)]),
    st.builds(
        a_card,
        st.sampled_from(["n0", "n1", "n2", "elsewhere"]),
        model=st.sampled_from(_MODELS),
        mb=st.sampled_from([0, 16_000, MB, 81_920]),
        used_mb=st.sampled_from([0, 0, 500, 20_000]),
        healthy=st.sampled_from([True, True, True, False]),
        group=st.sampled_from(["", "0", "0", "1"]),
        owner=st.sampled_from(["", "", "p", "z"]),
        holder=st.sampled_from(["", "", "team/p", "team/z", "?"]),
        claims=st.one_of(st.just({}), _CLAIMS),
    ),
    max_size=14,
)
PODS = st.builds(
    wanting,
    st.sampled_from(["p", "q", "new"]),
    cards=st.integers(0, 3),
    model=st.sampled_from(["", "A100", A100, "A10", "T4", "H100"]),
    vram_mb=st.sampled_from([0, 0, 10_000, 30_000]),
    topology=st.sampled_from(["", "", "nvlink"]),
    share_milli=st.sampled_from([0, 0, 250, 1000]),
)


# --- what a plain loop says -------------------------------------------------------------------


class ReferenceFit(NamedTuple):
    fits: bool
    is_only_unlinked: bool  # it would fit if cards need not be linked
    of_ten: float
    snug: float  # percent of the card that a share would fill most, of whole cards the share in use


def reference_fit(
    pod: PodAsk, name: str, cards: Mapping[str, CardState], victims: Iterable[str] = ()
) -> ReferenceFit:
    """One node, card by card; cards of other nodes have no effect."""
    gone = {pod.uid, *victims}
    here = [card for card in cards.values() if card.node == name]
    alike = [card for card in here if is_alike(pod.gpu.model, card.model)]
    fit = [card for card in alike if fits_on(pod, card, gone)]
    loose = [card for card in fit if not is_precious(pod, card, here, gone)]
    unlinked = together(pod, fit, is_linked=False)
    wants_links = pod.gpu.topology == "nvlink" and number(pod) > 1
    fits = together(pod, fit, is_linked=wants_links)
    used = sum(left_of(card, gone)[0] for card in alike)
    total = sum(card.total_mb for card in alike)
    share = (used / total) * 100 if total else 0.0
    breaks = fits and not together(pod, loose, is_linked=wants_links)
    of_ten = min(10.0, max(0.0, share / 10.0 - 1.0 * breaks))
    return ReferenceFit(
        fits, unlinked and not fits, of_ten, snugly(pod, fit, share, gone) - 10 * breaks
    )


def snugly(pod: PodAsk, fit: list[CardState], share: float, gone: Set[str]) -> float:
    if wants_alone(pod):
        return share
    free = {id(card): left_of(card, gone)[1] for card in fit}
    filled = [(c.total_mb - free[id(c)] + asked_mb(pod, c)) / c.total_mb * 100 for c in fit]
    return max(filled, default=0.0)


def number(pod: PodAsk) -> int:
    milli = pod.gpu.share_milli or (0 if pod.gpu_cards else pod.gpu_milli)
    return pod.gpu_cards or max(1, (milli + 999) // 1000)


def is_alike(asked: str, model: str) -> bool:
    """All words of one in the other, in order, without the makers' names."""
    makers = "nvidia|amd|intel|tesla|instinct"
    wanted = [word for word in re.findall(r"\w+", asked.lower()) if not re.fullmatch(makers, word)]
    pattern = r"\b.*\b".join(map(re.escape, wanted))
    return not asked or bool(re.search(rf"\b{pattern}\b", model.lower()))


def left_of(card: CardState, gone: Set[str]) -> tuple[int, int, bool]:
    """Used and free memory and whether the card is untouched, without the pods in `gone`."""
    others = {uid: claim for uid, claim in card.claims.items() if uid not in gone}
    owner = whose(card)
    if owner:
        seen = 0 if owner in gone else card.allocated_mb
        is_theirs = owner in others
    else:
        seen = 0 if card.claims and not others else card.allocated_mb
        is_theirs = any(claim.confirmed for claim in others.values())
    claimed = sum(claim.mb for claim in others.values())
    used = max(seen, claimed) if is_theirs else seen + claimed
    owned = owner != "" and owner not in gone
    free = 0 if owned and owner not in card.claims else max(0, card.total_mb - used)
    return used, free, not others and not owned


def whose(card: CardState) -> str:
    """The owner by UID, or else by the pod name on the card."""
    if card.owner:
        return card.owner
    confirmed = sorted(uid for uid, claim in card.claims.items() if claim.confirmed)
    if card.holder == "?" and confirmed:
        return confirmed[0]
    named = sorted(uid for uid, claim in card.claims.items() if _name(claim) == card.holder)
    return named[0] if named else card.holder


def _name(claim: Claim) -> str:
    return f"{claim.namespace}/{claim.name}"


def fits_on(pod: PodAsk, card: CardState, gone: Set[str]) -> bool:
    if not card.healthy or card.total_mb == 0:
        return False
    _, free, untouched = left_of(card, gone)
    if wants_alone(pod):
        least = pod.gpu.vram_mb or max(0, card.total_mb - 1024)
        return untouched and free >= least
    return free >= asked_mb(pod, card)


def milli(pod: PodAsk) -> int:
    return pod.gpu.share_milli or (0 if pod.gpu_cards else pod.gpu_milli // number(pod))


def wants_alone(pod: PodAsk) -> bool:
    return not milli(pod) and (pod.gpu_cards > 0 or not pod.gpu.vram_mb)


def asked_mb(pod: PodAsk, card: CardState) -> int:
    return max(pod.gpu.vram_mb, (milli(pod) * card.total_mb + 999) // 1000)


def together(pod: PodAsk, fit: list[CardState], *, is_linked: bool) -> bool:
    groups: dict[tuple[str, str], int] = {}
    for card in fit:
        if is_linked and not card.nvlink_group:
            continue
        key = (card.model, card.nvlink_group if is_linked else "")
        groups[key] = groups.get(key, 0) + 1
    return any(count >= number(pod) for count in groups.values())


def is_precious(pod: PodAsk, card: CardState, here: list[CardState], gone: Set[str]) -> bool:
    if not card.nvlink_group:
        return False
    group = [c for c in here if (c.model, c.nvlink_group) == (card.model, card.nvlink_group)]
    untouched = all(c.healthy and left_of(c, gone)[2] for c in group)
    return untouched and len(group) > number(pod)
