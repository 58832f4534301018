"""Densities and hardware families of nodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON
from joulie_bus.events import HardwareDiscovered
from joulie_operator.planning.eligible import candidates
from joulie_operator.planning.rules import Rules
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.hardware.catalog import with_catalog_figures
from joulie_projections.state.state import NodeState

CATALOG = shipped_catalog()
EVERY = Rules(selector="")
BARE = HardwareDiscovered(
    node="n", cpu_model="AMD EPYC 9554", cpu_sockets=1, cpu_cores=64, cpu_max_mw_per_socket=0
)


def node(gpu: str = "", gpus: int = 0, **fields: object) -> NodeState:
    found = replace(BARE, gpu_model=gpu, gpu_count=gpus, **fields)
    return of(with_catalog_figures(found, CATALOG))


def of(found: HardwareDiscovered) -> NodeState:
    return NodeState(ordinal=0, at=NOON, present=True, ready=True, schedulable=True, hardware=found)


def densities(*nodes: NodeState) -> list[float]:
    named = {str(number): each for number, each in enumerate(nodes)}
    found = {candidate.name: candidate.density for candidate in candidates(named, EVERY)}
    return [found[name] for name in named]


def families(*nodes: NodeState) -> list[str]:
    named = {str(number): each for number, each in enumerate(nodes)}
    found = {candidate.name: candidate.family for candidate in candidates(named, EVERY)}
    return [found[name] for name in named]


def test_cards_count_by_their_tflops() -> None:
    cards = ["Tesla T4", "NVIDIA L4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "B200"]
    found = densities(*(node(card, 8) for card in cards))

    assert found == sorted(found)
    assert len(set(found)) == len(found)


MOST_CORES = of(replace(BARE, cpu_model="AMD EPYC 9965", cpu_cores=192))


@pytest.mark.parametrize("card", [*(model.model for model in CATALOG.gpus.values()), "Acme One"])
def test_eight_cards_of_any_model_are_denser_than_any_node_without_cards(card: str) -> None:
    with_cards = node(card, 8, cpu_model="", cpu_cores=8)

    assert densities(MOST_CORES)[0] < densities(with_cards)[0]
    assert densities(MOST_CORES)[0] < densities(node(card, 16, cpu_model="", cpu_cores=0))[0]


def test_a_node_with_one_small_card_ranks_behind_a_large_one_without_cards() -> None:
    """The figures of docs/from-published-joulie.md."""
    small, large = densities(node("Tesla T4", 1, cpu_model="", cpu_cores=4), MOST_CORES)

    assert (round(small, 3), round(large, 2)) == (0.055, 0.33)


@pytest.mark.parametrize("cards", range(9))
def test_a_share_of_the_most_cards_counts_at_least_as_much_as_that_of_cores(cards: int) -> None:
    cores = of(replace(BARE, cpu_model="", cpu_cores=cards * 24))
    t4 = node("Tesla T4", cards, cpu_model="", cpu_cores=0)

    assert densities(cores)[0] <= densities(t4)[0]


def test_unknown_cards_are_neither_the_densest_nor_the_least_dense() -> None:
    worst, unknown, best = densities(node("T4", 8), node("Acme One", 8), node("H100", 8))

    assert worst < unknown < best


def test_threads_do_not_count_as_cores() -> None:
    threads = replace(BARE, cpu_cores=128, source="labels")

    assert densities(node(), of(with_catalog_figures(threads, CATALOG))) == [64 / 192 / 3] * 2


@given(st.integers(0, 1024), st.integers(0, 64), st.integers(0, 5000))
@settings(deadline=None, max_examples=60)
def test_a_density_is_from_0_to_1(cores: int, gpus: int, tflops: int) -> None:
    found = replace(BARE, cpu_cores=cores, gpu_count=gpus, gpu_model="x" if gpus else "")
    found = replace(found, figures=replace(found.figures, gpu_tflops=tflops))

    assert 0 <= densities(of(found))[0] <= 1


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "NVIDIA-A100-SXM4-80GB",
            "NVIDIA A100-SXM4-80GB",
            "A100 80GB SXM",
            "A100-SXM4-80GB-SHARED",
        ],
        ["NVIDIA A100 80GB PCIe", "NVIDIA-A100-80GB-PCIe", "A100-PCIE-80GB"],
        ["Tesla T4", "NVIDIA-T4", "Tesla-T4-SHARED"],
        ["Acme One 8GB", "acme-one-8GB", "Acme_8GB_One"],
    ],
    ids=lambda spellings: str(spellings[0]),
)
def test_spellings_of_one_card_are_one_family_even_without_a_catalog(spellings: list[str]) -> None:
    nodes = [of(replace(BARE, gpu_model=name, gpu_count=8)) for name in spellings]

    assert len(set(families(*nodes))) == 1


def test_different_names_of_one_catalog_model_are_one_family() -> None:
    assert set(families(node("NVIDIA H100 80GB HBM3", 8), node("H100-SXM5", 8))) == {
        "NVIDIA H100 SXM5"
    }


def test_cards_that_differ_in_form_or_memory_are_different_families() -> None:
    cards = ["A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "H100 PCIe", "H100 NVL", "H100"]

    assert len(set(families(*(node(card, 8) for card in cards)))) == len(cards)


def test_spellings_of_one_processor_are_one_family() -> None:
    names = ["AMD EPYC 9654 96-Core Processor", "AMD-EPYC-9654", "EPYC_9654"]

    assert len(set(families(*(of(replace(BARE, cpu_model=name)) for name in names)))) == 1


def test_nodes_of_unknown_hardware_are_one_family() -> None:
    blank = NodeState(
        ordinal=0, at=NOON, present=True, ready=True, schedulable=True, cpu_milli=8000
    )
    amd = replace(blank, gpus=8, gpu_vendor="amd")

    assert families(blank, amd, of(replace(BARE, cpu_model=""))) == ["cpu", "amd gpu", "cpu"]
