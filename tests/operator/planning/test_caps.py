import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, hardware
from joulie_bus.events import HardwareDiscovered, Profile
from joulie_operator.planning.caps import (
    Caps,
    WattRange,
    caps_for,
    current_caps,
    gpu_range,
    model_caps,
    under_catalog_names,
)
from joulie_operator.planning.rules import Rules
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.hardware.catalog import EMPTY, with_catalog_figures
from joulie_projections.state.state import NodeState
from joulie_projections.twin.facility import NO_HALLS
from joulie_projections.twin.twin import twin_of

CPUS = replace(hardware("n", watts=400), cpu_sockets=2, cpu_min_mw_per_socket=150_000)
CARDS = replace(CPUS, gpu_count=4, gpu_model="L40S", gpu_max_mw=350_000, gpu_min_mw=200_000)
SILENT_CPUS = replace(CPUS, cpu_max_mw_per_socket=0, cpu_cores=96)  # 336 W are assumed
SILENT = replace(CARDS, gpu_max_mw=0, gpu_min_mw=0)  # the watts of its cards are unknown
RATED = replace(CARDS, gpu_max_mw=320_000, gpu_min_mw=90_000, gpu_by_catalog=True)
SAID = '{"L40S": {"minCapWatts": 100, "maxCapWatts": 300}}'


def node(found: HardwareDiscovered | None, **fields: Any) -> NodeState:
    return NodeState(ordinal=0, at=NOON, hardware=found, **fields)


@pytest.mark.parametrize(
    ("found", "profile", "rules", "expected"),
    [
        (CPUS, "performance", Rules(), Caps(100)),
        (CPUS, "eco", Rules(), Caps(60)),
        (CARDS, "eco", Rules(), Caps(60, 60)),
        (CARDS, "eco", Rules(cpu_eco_pct=70, gpu_eco_pct=50), Caps(70, 50)),
        (CARDS, "performance", Rules(cpu_performance_pct=None), Caps(None, 100)),
        (CARDS, "eco", Rules(gpu_eco_pct=None, gpu_absolute=True), Caps(60)),
        (None, "eco", Rules(), Caps(60)),
    ],
    ids=[
        "performance",
        "eco",
        "with cards",
        "other percentages",
        "no CPU cap",
        "no GPU cap",
        "unknown hardware",
    ],
)
def test_a_profile_caps_at_a_percentage_of_the_maximum(
    found: HardwareDiscovered | None, profile: Profile, rules: Rules, expected: Caps
) -> None:
    assert caps_for(profile, node(found), rules) == expected


def test_cards_without_a_description_are_capped_too() -> None:
    assert caps_for("eco", node(None, gpus=8), Rules()) == Caps(60, 60)


@pytest.mark.parametrize(
    ("profile", "found", "watts", "expected"),
    [
        ("eco", CPUS, 240, Caps(60, None, 240_000)),
        ("eco", CPUS, 239, Caps(59, None, 239_000)),
        ("eco", CPUS, 120, Caps(37, None, 150_000)),
        ("eco", CPUS, 9999, Caps(100, None, 400_000)),
        ("performance", CPUS, 240, Caps(100, None, 400_000)),
        ("eco", None, 120, Caps(None, None, 120_000)),
        ("eco", SILENT_CPUS, 120, Caps(71, None, 120_000)),
        ("performance", SILENT_CPUS, 120, Caps(100, None, 5_000_000)),
    ],
    ids=[
        "as asked",
        "percent rounds down",
        "raised to the lowest",
        "lowered to the highest",
        "5000 W is above the maximum",
        "no description",
        "a guessed maximum",
        "5000 W is above the guess",
    ],
)
def test_cpu_watts_stay_within_the_range_of_the_node(
    profile: Profile, found: HardwareDiscovered | None, watts: float, expected: Caps
) -> None:
    rules = Rules(cpu_absolute=True, cpu_eco_w=watts)

    assert caps_for(profile, node(found), rules) == expected


def test_the_budget_follows_watts_where_the_maximum_is_a_guess() -> None:
    bare = node(None, cpu_milli=96_000)
    caps = caps_for("eco", bare, Rules(cpu_absolute=True, cpu_eco_w=120))
    capped = replace(bare, cpu_cap_pct=caps.cpu_pct, cpu_cap_mw_per_socket=caps.cpu_mw_per_socket)

    assert caps == Caps(35, None, 120_000)
    assert 110 < twin_of(capped, NO_HALLS).capped_w <= 120 < twin_of(bare, NO_HALLS).capped_w


@pytest.mark.parametrize(
    ("found", "said", "expected"),
    [
        (CARDS, SAID, WattRange(200, 350)),
        (RATED, SAID, WattRange(100, 300)),
        (SILENT, SAID, WattRange(100, 300)),
        (RATED, "{}", WattRange(90, 320)),
        (replace(SILENT, gpu_model="new"), SAID, None),
        (None, SAID, None),
    ],
    ids=["the node", "the settings", "the settings alone", "the catalog", "unknown", "no hardware"],
)
def test_the_range_of_a_card_comes_from_the_most_reliable_source(
    found: HardwareDiscovered | None, said: str, expected: WattRange | None
) -> None:
    assert gpu_range(node(found), said) == expected


@pytest.mark.parametrize(
    ("found", "percent", "gpu_pct", "gpu_mw"),
    [
        (CARDS, 60, 60, 210_000),
        (CARDS, 58, 58, 203_000),
        (CARDS, 40, 57, 200_000),
        (CARDS, 100, 100, 350_000),
        (RATED, 50, 50, 160_000),
        (replace(SILENT, gpu_model="new"), 50, 50, None),
    ],
    ids=["eco", "exact", "raised to the lowest", "the maximum", "by the catalog", "unknown model"],
)
def test_gpu_watts_come_with_a_percentage(
    found: HardwareDiscovered, percent: int, gpu_pct: int, gpu_mw: int | None
) -> None:
    rules = Rules(gpu_eco_pct=percent, gpu_absolute=True)
    meant = caps_for("eco", node(found), rules)

    assert (meant.gpu_pct, meant.gpu_mw) == (gpu_pct, gpu_mw)


def test_a_percentage_refers_to_the_card_and_not_to_the_range_of_the_setting() -> None:
    rules = Rules(gpu_eco_pct=80, gpu_absolute=True, gpu_models=SAID)
    meant = caps_for("eco", node(RATED), rules)

    assert (meant.gpu_pct, meant.gpu_mw) == (75, 240_000)  # of 320 W, and of 300 W


@pytest.mark.parametrize(
    ("profile", "watts", "pct", "mw"),
    [
        ("eco", 120, 88, 320_000),
        ("eco", 350, 97, 350_000),
        ("eco", 380, 100, 380_000),
        ("performance", 5000, 100, 400_000),
    ],
    ids=["raised to the lowest", "as asked", "above the usual", "the highest"],
)
def test_cpu_watts_stay_within_the_range_of_the_catalog_if_the_node_reports_none(
    profile: Profile, watts: float, pct: int, mw: int
) -> None:
    bare = replace(CPUS, cpu_max_mw_per_socket=0, cpu_min_mw_per_socket=0)
    rules = Rules(cpu_absolute=True, cpu_eco_w=watts, cpu_performance_w=watts)

    assert caps_for(profile, node(with_catalog_figures(bare, shipped_catalog())), rules) == Caps(
        pct, None, mw
    )


@pytest.mark.parametrize("model", ["NVIDIA L4", "NVIDIA-L4", "L4", "NVIDIA-L4-SHARED"])
@pytest.mark.parametrize("said", ["NVIDIA-L4", "NVIDIA L4", "nvidia_l4"])
def test_caps_of_a_model_are_found_however_it_is_spelled(model: str, said: str) -> None:
    caps = json.dumps({said: {"minCapWatts": 40, "maxCapWatts": 60}})

    assert gpu_range(node(replace(SILENT, gpu_model=model)), caps) == WattRange(40, 60)
    assert gpu_range(node(replace(SILENT, gpu_model="NVIDIA L40")), caps) is None


def test_caps_under_another_name_of_the_catalog_are_those_of_the_model() -> None:
    said = '{"NVIDIA-H100-80GB-HBM3": {"minCapWatts": 200, "maxCapWatts": 500}}'

    named = under_catalog_names(said, shipped_catalog())

    assert gpu_range(node(replace(SILENT, gpu_model="NVIDIA H100 SXM5")), named) == (200, 500)
    assert under_catalog_names(SAID, EMPTY) == SAID


@pytest.mark.parametrize("other", ["nvidia-l4", "L4"])
def test_two_ranges_of_one_model_are_refused(other: str) -> None:
    said = f'{{"NVIDIA L4": {{"maxCapWatts": 60}}, "{other}": {{"maxCapWatts": 72}}}}'

    with pytest.raises(ValueError, match=r"'NVIDIA L4' and .* are one model with two ranges"):
        model_caps(said)
    two = '{"H100": {"maxCapWatts": 60}, "H100 SXM5": {"maxCapWatts": 72}}'
    with pytest.raises(ValueError, match="another range is given"):
        under_catalog_names(two, shipped_catalog())


def test_current_caps_can_be_compared_with_the_caps_of_a_profile() -> None:
    capped = node(
        CARDS, cpu_cap_pct=60, gpu_cap_pct=60, cpu_cap_mw_per_socket=240_000, gpu_cap_mw=210_000
    )
    rules = Rules(cpu_absolute=True, cpu_eco_w=240, gpu_absolute=True)

    assert current_caps(capped) == caps_for("eco", capped, rules)


@settings(deadline=None, max_examples=100)
@given(st.floats(1, 2000), st.integers(1, 1000), st.integers(0, 1000))
def test_watts_stay_within_the_range_and_percent_never_exceeds_them(
    watts: float, low: int, more: int
) -> None:
    found = replace(
        CPUS, cpu_min_mw_per_socket=low * 1000, cpu_max_mw_per_socket=(low + more) * 1000
    )
    meant = caps_for("eco", node(found), Rules(cpu_absolute=True, cpu_eco_w=watts))

    assert meant.cpu_mw_per_socket is not None
    assert meant.cpu_pct is not None
    assert low * 1000 <= meant.cpu_mw_per_socket <= (low + more) * 1000
    assert meant.cpu_pct * (low + more) * 10 <= meant.cpu_mw_per_socket
