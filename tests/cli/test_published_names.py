"""The environment variables of the published Joulie: each works, or its replacement is named."""

import dataclasses
import json
from pathlib import Path

import pytest

from joulie_bus.runtime.settings import BusSettings, Source, declared, named
from joulie_cli.command_line.commands import commands
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.settings import ScoringSettings, ServerSettings
from joulie_operator.cluster_settings import GpuLabelSettings
from joulie_projections.component.wiring import wired

ROOT = Path(__file__).parents[2]
OPERATOR = (
    "CPU_ECO_CAP_PCT_OF_MAX",
    "CPU_PERFORMANCE_CAP_PCT_OF_MAX",
    "CPU_WRITE_ABSOLUTE_CAPS",
    "ECO_CAP_WATTS",
    "ENABLE_FACILITY_METRICS",
    "FACILITY_POLL_INTERVAL",
    "GPU_ECO_CAP_PCT_OF_MAX",
    "GPU_MODEL_CAPS_JSON",
    "GPU_PERFORMANCE_CAP_PCT_OF_MAX",
    "GPU_PRODUCT_LABEL_KEYS",
    "GPU_WRITE_ABSOLUTE_CAPS",
    "NODE_SELECTOR",
    "PERFORMANCE_CAP_WATTS",
    "QUEUE_HP_BASE_FRAC",
    "QUEUE_HP_MAX",
    "QUEUE_HP_MIN",
    "QUEUE_PERF_PER_HP_NODE",
    "RECONCILE_INTERVAL",
    "STATIC_HP_FRAC",
)
EXTENDER = (
    "CACHE_TTL",
    "ENABLE_FACILITY_METRICS",
    "EXTENDER_ADDR",
    "MARGINAL_CPU_UTIL_COEFF",
    "MARGINAL_GPU_UTIL_COEFF_PERFORMANCE",
    "MARGINAL_GPU_UTIL_COEFF_STANDARD",
    "TWIN_STALENESS_THRESHOLD",
)
NAMES = [*(("operator", name) for name in OPERATOR), *(("extender", name) for name in EXTENDER)]


@pytest.mark.parametrize(("part", "name"), NAMES)
def test_a_published_variable_works_or_is_named_with_what_replaced_it(part: str, name: str) -> None:
    classes = commands()[part].load().program().all_settings()
    replaced = {name for cls in classes for name in getattr(cls, "REPLACED", {})}

    assert name in {row.name for row in declared(*classes)} | replaced


@pytest.mark.parametrize(("part", "name"), NAMES)
def test_a_published_variable_is_on_the_page_for_those_who_come_from_it(
    part: str, name: str
) -> None:
    assert f"| `{name}` |" in (ROOT / "docs" / "from-published-joulie.md").read_text()


def test_a_variable_that_was_replaced_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CACHE_TTL", "30s")
    monkeypatch.setenv("LOG_FORMAT", "json")

    wired("extender", (ServerSettings,), tmp_path, None)

    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["setting"]) == ("setting_without_effect", "CACHE_TTL")
    assert "TWIN_STALENESS_THRESHOLD" in line["instead"]


def test_a_variable_that_was_replaced_is_no_mistake_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "joulie.toml"
    file.write_text('CACHE_TTL = "30s"\n')
    source = Source({}, file)
    source.load(BusSettings)
    source.load(ServerSettings)

    assert "CACHE_TTL" not in {each.name for each in source.finish()}
    assert list(source.without_effect) == ["CACHE_TTL"]


def test_the_labels_of_gpu_models_are_tried_after_the_own_one() -> None:
    said = Source.of(GPU_PRODUCT_LABEL_KEYS="acme.example/gpu, joulie.io/gpu.product")

    assert said.load(GpuLabelSettings).model_labels == (
        "joulie.io/hw.gpu-model",
        "acme.example/gpu",
        "joulie.io/gpu.product",
    )


@pytest.mark.parametrize("text", ["", "a b", "/gpu", "A.example/gpu", "x/y/z"])
def test_a_name_that_no_label_can_have_is_a_mistake(text: str) -> None:
    source = Source.of(GPU_PRODUCT_LABEL_KEYS=text)
    source.load(GpuLabelSettings)

    with pytest.raises(Exception, match="not a list of label names"):
        source.finish()


# As published, but for the points of devices. Nobody can choose them by what they know; `joulie
# whatif` and a replay of older entries use the values that those declare.
CONSTANTS = {
    *("headroom", "cooling", "pressure", "neutral", "trend_limit", "devices_points"),
    *("eco_bonus", "draining_penalty", "gang_points"),
}


def test_a_number_of_the_formula_is_a_setting_or_a_constant() -> None:
    usual = ScoringSettings().weights()
    reached = {
        name
        for field in named(ScoringSettings)
        if isinstance(value := getattr(ScoringSettings(), field.name), float)
        for name, other in dataclasses.replace(ScoringSettings(), **{field.name: value + 1})  # type: ignore[arg-type]
        .weights()
        .__dict__.items()
        if other != getattr(usual, name)
    }

    numbers = {name for name, value in vars(Weights()).items() if isinstance(value, float)}
    assert numbers - reached == {"energy_formula", *CONSTANTS}  # the first is a version


@pytest.mark.parametrize(("scale", "burst"), [("6", (2.0, 500.0)), ("360", (120.0, 30_000.0))])
def test_the_numbers_of_a_burst_follow_from_the_scale_of_trends(
    scale: str, burst: tuple[float, float]
) -> None:
    weights = Source.of(SCORE_TREND_SCALE=scale).load(ScoringSettings).weights()

    assert (weights.trend_scale, weights.trend_burst_scale, weights.burst_w_per_min) == (
        float(scale),
        *burst,
    )


def test_entries_of_removed_settings_keep_their_values() -> None:
    then = Weights(cooling_power="measured", trend_limit=3.0, neutral=20.0, burst_w_per_min=7.0)

    assert weights_of(declaration(then)) == then


def test_without_levels_a_group_gets_no_points() -> None:
    without = Source.of(SCORE_GANG_LEVELS="none").load(ScoringSettings).weights()
    node_alone = Source.of(SCORE_GANG_LEVELS="").load(ScoringSettings).weights()

    assert (without.gang_points, without.gang_levels) == (0.0, "")
    assert (node_alone.gang_points, node_alone.gang_levels) == (40.0, "")


@pytest.mark.parametrize(
    ("packing", "weight"), [("share", 0.3), ("fit", 0.3), ("fragmentation", 1)]
)
def test_the_weight_of_the_packing_follows_from_how_cards_are_packed(
    packing: str, weight: float
) -> None:
    weights = Source.of(gpu_packing=packing).load(ScoringSettings).weights()

    assert weights.gpu.binpack == weight
