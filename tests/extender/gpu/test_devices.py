"""Pods and nodes whose cards kube-scheduler gives out by DRA: Joulie compares models only."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bus_kit import NOON
from gpu_kit import A100, MB, a_card, twin_columns_of, wanting
from joulie_bus.events import DeviceAsk, DeviceClaim, DeviceSeen, PodAsk
from joulie_extender.gpu.bound_pods import claims_of_bound
from joulie_extender.gpu.claim_proposals import proposals
from joulie_extender.gpu.fit import GpuVerdict, gpu_verdicts
from joulie_extender.gpu.free import asks_no_card
from joulie_projections.pods.devices import is_by_dra, with_asked
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState, PodState

CLAIMS = DeviceAsk(claims=("template/some",))


def by_dra(uuid: str = "g0", *, held: bool = False, model: str = A100, mb: int = MB) -> CardState:
    claims = (DeviceClaim(uid="c", namespace="team", name="c", pods=("q",)),)
    seen = DeviceSeen(card=uuid, node="n0", pool="gpu.x/n0", claims=claims if held else ())
    return replace(a_card(model=model, mb=mb), source="dra", device=seen)


def claiming(cards: int | None, **gpu: Any) -> PodAsk:
    pod = replace(wanting("p", cards=0, **gpu), devices=CLAIMS)
    return with_asked(pod, lambda _namespace, _claim: cards)


def verdict(pod: PodAsk, *cards: CardState) -> int:
    columns = twin_columns_of({f"g{at}": card for at, card in enumerate(cards)})
    rows = np.array([columns.rows["n0"]])
    return int(gpu_verdicts(pod, columns, rows, ())[0])


@pytest.mark.parametrize("held", [False, True])
def test_a_pod_with_claims_fits_by_the_models_of_the_cards_whether_or_not_they_are_free(
    held: bool,
) -> None:
    cards = [by_dra(held=held) for _ in range(2)]

    assert verdict(claiming(2, model="A100"), *cards) == GpuVerdict.PASSED
    assert verdict(claiming(3, model="A100"), *cards) == GpuVerdict.NO_CARDS
    assert verdict(claiming(2, model="H100"), *cards) == GpuVerdict.NO_CARDS


def test_a_pod_with_claims_fits_by_the_size_of_the_cards() -> None:
    assert verdict(claiming(1, vram_mb=MB), by_dra(held=True)) == GpuVerdict.PASSED
    assert verdict(claiming(1, vram_mb=MB + 1), by_dra(held=True)) == GpuVerdict.NO_CARDS


def test_a_pod_with_claims_is_not_refused_for_links() -> None:
    asked = claiming(2, topology="nvlink")

    assert verdict(asked, by_dra(), by_dra()) == GpuVerdict.PASSED


def test_a_pod_with_claims_fits_where_another_source_alone_shows_the_cards() -> None:
    assert verdict(claiming(1, model="A100"), a_card(owner="q")) == GpuVerdict.PASSED


def test_kube_scheduler_counts_the_cards_of_an_extended_resource_of_dra() -> None:
    """Its node has nothing in allocatable, so that it was refused where no device is free."""
    assert verdict(wanting(model="A100"), by_dra(held=True)) == GpuVerdict.PASSED


def test_a_share_of_a_card_that_kube_scheduler_gives_out_does_not_exist() -> None:
    shares = wanting(cards=0, share_milli=500)

    assert verdict(shares, by_dra()) == GpuVerdict.NO_CARDS
    assert verdict(shares, by_dra(), a_card()) == GpuVerdict.PASSED


def test_the_cards_of_a_claim_count_in_the_ask() -> None:
    asked = claiming(8)

    assert (asked.gpu_milli, asked.gpu_cards, asked.devices.milli) == (8000, 8, 8000)
    assert is_by_dra(asked)


def test_a_claim_of_an_unknown_number_keeps_the_pod_with_cards() -> None:
    asked = claiming(None)

    assert (asked.gpu_milli, asked.devices.claims) == (0, CLAIMS.claims)
    assert not asks_no_card(asked)


def test_a_claim_for_other_devices_leaves_the_pod_as_it_is() -> None:
    asked = claiming(0)

    assert (asked.gpu_milli, asked.devices) == (0, DeviceAsk())
    assert asks_no_card(asked)
    assert not is_by_dra(asked)


@pytest.mark.parametrize("pod", [claiming(1), wanting("p")], ids=["claim", "extended resource"])
def test_nothing_is_claimed_for_a_pod_where_kube_scheduler_gives_out_cards(pod: PodAsk) -> None:
    state = ClusterState()
    state.pods["p"] = PodState(pod=pod, node="n0")
    state.nodes["n0"] = NodeState(ordinal=0, at=NOON)
    state.gpus["g0"] = by_dra()

    assert [*claims_of_bound(state, "p", ["g0"])] == []


def test_an_agents_report_of_a_holder_moves_no_claim_of_a_card_of_dra() -> None:
    state = ClusterState()
    state.pods["p"] = PodState(pod=claiming(1), node="n0")
    state.gpus["g0"] = replace(by_dra(), source="agent", owner="p")

    assert [*proposals(state, "g0", NOON)] == []
