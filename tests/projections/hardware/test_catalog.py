"""The hardware catalog: sources, names, user files, and figures for discoveries."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from bus_kit import hardware, node_seen, records
from joulie_bus.errors import BadCatalog, SettingsError
from joulie_bus.events import HardwareDiscovered, ModelFigures
from joulie_bus.runtime.settings import Source
from joulie_projections.catalog_file import CatalogSettings, shipped_catalog
from joulie_projections.fold.sequence import fold
from joulie_projections.hardware.catalog import (
    Catalog,
    from_labels,
    invalid_counts,
    parse_catalog,
    with_catalog_figures,
)
from joulie_projections.hardware.models import words
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

CATALOG = shipped_catalog()
OURS = b"""
[[cpu]]
model = "AMD EPYC 9654"
cores = 96
tdp_w = 400
source = "our own meter, rack 7"

[[gpu]]
model = "Acme One"
aliases = ["One X"]
memory_gb = 8
tdp_w = 50
source = "acme"

[sources]
acme = "Acme data sheet, page 3"
"""

H100_MW = (73_000, 125_000, 199_000, 307_000, 483_000, 629_000, 692_000)
H200_MW = (80_000, 123_000, 192_000, 299_000, 481_000, 627_000, 683_000)


def entry(**changes: object) -> bytes:
    """A valid CPU entry with these changes."""
    given: dict[str, object] = {"model": "C", "cores": 8, "tdp_w": 90, "source": "s"} | changes
    lines = (f"{key} = {value!r}" for key, value in given.items() if value is not None)
    return "\n".join(["[[cpu]]", *lines]).encode()


def discovered(cpu: str = "", gpu: str = "", *, gpus: int = 0) -> HardwareDiscovered:
    """A discovery with models and without figures."""
    return HardwareDiscovered(
        node="n",
        cpu_model=cpu,
        cpu_sockets=2,
        cpu_cores=0,
        cpu_max_mw_per_socket=0,
        gpu_model=gpu,
        gpu_count=gpus,
    )


def test_every_shipped_model_cites_its_vendor() -> None:
    sources = {each.model: each.source for each in (*CATALOG.cpus.values(), *CATALOG.gpus.values())}
    vendors = ("amd.com", "intel.com", "nvidia.com")

    assert len(sources) > 100
    assert [name for name, source in sources.items() if not any(v in source for v in vendors)] == []


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654"),
        ("AMD-EPYC-7763", "AMD EPYC 7763"),
        ("Intel(R) Xeon(R) Platinum 8480+", "Intel Xeon Platinum 8480+"),
        ("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "Intel Xeon Gold 6338"),
        ("Some Other Processor", None),
        ("AMD EPYC 96540", None),
    ],
)
def test_a_processor_is_found_by_the_names_that_systems_report(
    name: str, model: str | None
) -> None:
    found = CATALOG.cpu(name)

    assert (found.model if found else None) == model


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100 SXM4 40GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"),
        ("NVIDIA-A100-PCIE-40GB", "NVIDIA A100 PCIe 40GB"),
        ("A100", "NVIDIA A100 SXM4 40GB"),
        ("A10", "NVIDIA A10"),
        ("NVIDIA A10G", None),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA-L4", "NVIDIA L4"),
        ("NVIDIA-L40S", "NVIDIA L40S"),
        ("NVIDIA L40", "NVIDIA L40"),
        ("Tesla T4", "NVIDIA T4"),
        ("AMD_Instinct_MI300X_OAM", "AMD Instinct MI300X"),
        ("", None),
    ],
)
def test_a_card_is_found_by_whole_words_only(name: str, model: str | None) -> None:
    found = CATALOG.gpu(name)

    assert (found.model if found else None) == model


def test_models_in_common_use_are_in_the_catalog() -> None:
    processors = "EPYC 7763, EPYC 9654, EPYC 9755, Platinum 8380, Platinum 8480+, Platinum 8592+"
    cards = "A100, H100, H200, B200, L4, L40S, T4, MI250X, MI300X"

    assert all(CATALOG.cpu(name) for name in processors.split(", "))
    assert all(CATALOG.gpu(name) for name in cards.split(", "))


def test_a_card_has_memory_and_tflops() -> None:
    card = CATALOG.gpu("A100 40GB")

    assert card is not None
    assert (card.memory_gb, card.fp16_tflops, card.tdp_w) == (40, 312, 400)


def test_every_cap_range_includes_the_tdp() -> None:
    for model in (*CATALOG.cpus.values(), *CATALOG.gpus.values()):
        low, high = model.cap_w or (model.tdp_w, model.tdp_w)

        assert low <= model.tdp_w <= high


# --- user files -------------------------------------------------------------------------------


def test_a_user_file_replaces_and_adds_models() -> None:
    both = parse_catalog(OURS, "ours.toml", CATALOG)

    own, new = both.cpu("AMD EPYC 9654"), both.gpu("acme one-x")
    assert own is not None
    assert new is not None
    assert (own.tdp_w, own.source) == (400, "our own meter, rack 7")
    assert (new.tdp_w, new.source) == (50, "Acme data sheet, page 3")
    assert both.cpu("EPYC 9654P") is None, "a replaced model is removed with all its names"
    assert both.gpu("T4") == CATALOG.gpu("T4")


def card(watts: list[int], by: str | None = "us") -> bytes:
    lines = [
        "[[gpu]]",
        'model = "G"',
        "memory_gb = 80",
        "tdp_w = 700",
        'source = "s"',
        f"measured_w = {watts}",
        *([f'measured_by = "{by}"'] if by else []),
    ]
    return "\n".join(lines).encode()


def test_a_curve_in_a_catalog_is_part_of_a_discovery() -> None:
    measured = parse_catalog(card([7, 8, 9, 10, 11, 12, 13]), "a file")

    found = with_catalog_figures(discovered("", "G", gpus=1), measured)

    assert found.figures.gpu_curve_mw == (7_000, 8_000, 9_000, 10_000, 11_000, 12_000, 13_000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(b"\xff", "it is not TOML", id="not text"),
        pytest.param(b"[[cpu]", "it is not TOML", id="not TOML"),
        pytest.param(entry(source=None), "missing required field `source`", id="no source"),
        pytest.param(entry(source=""), "length >= 1", id="an empty source"),
        pytest.param(entry(tdp_w=0), ">= 1", id="no watts"),
        pytest.param(entry(tdp_w="90"), "Expected `int`", id="text for watts"),
        pytest.param(entry(watts=1), "unknown field `watts`", id="an unknown field"),
        pytest.param(entry(cap_w=[9, 3]), "minimum above its maximum", id="a reversed range"),
        pytest.param(card([9] * 6), "length >= 7", id="too few measured watts"),
        pytest.param(card([9, 8, 9, 9, 9, 9, 9]), "measured_w falls", id="watts that fall"),
        pytest.param(card([9] * 7, by=None), "has no source", id="a curve without a source"),
        pytest.param(entry() + b"\n" + entry(), "'C' names both C and C", id="a duplicate"),
        pytest.param(b"[[gpus]]\n", "gpus: unknown table", id="an unknown table"),
        pytest.param(b"cpu = 7", "cpu number 1: Expected `object`", id="a number for a table"),
    ],
)
def test_an_invalid_catalog_is_rejected_with_the_reason(text: bytes, why: str) -> None:
    with pytest.raises(BadCatalog, match=r"ours\.toml cannot be used") as raised:
        parse_catalog(text, "ours.toml")

    assert why in str(raised.value)


def test_one_error_lists_all_mistakes() -> None:
    with pytest.raises(BadCatalog, match=r"2 mistake\(s\)"):
        parse_catalog(entry(tdp_w=0) + b"\n" + entry(cores=0), "ours.toml")


def test_an_invalid_file_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_bytes(entry(tdp_w=0))
    source = Source.of(HARDWARE_CATALOG=str(file))

    source.load(CatalogSettings)

    with pytest.raises(SettingsError, match="HARDWARE_CATALOG"):
        source.finish()


def test_a_missing_file_stops_the_start() -> None:
    source = Source.of(HARDWARE_CATALOG="/nowhere/ours.toml")

    source.load(CatalogSettings)

    with pytest.raises(SettingsError, match="No such file"):
        source.finish()


def test_without_a_file_the_shipped_catalog_is_used() -> None:
    assert Source.of().load(CatalogSettings).catalog == CATALOG


# --- discoveries ------------------------------------------------------------------------------


def test_missing_figures_of_a_discovery_come_from_the_catalog() -> None:
    found = with_catalog_figures(
        discovered("AMD EPYC 9654", "NVIDIA H100 80GB HBM3", gpus=8), CATALOG
    )

    assert (found.cpu_cores, found.cpu_max_mw_per_socket) == (192, 360_000)
    assert found.gpu_max_mw == 700_000


def test_figures_of_a_discovery_are_kept() -> None:
    own = replace(hardware("n", watts=333, gpus=1), cpu_min_mw_per_socket=99_000)
    found = with_catalog_figures(own, CATALOG)

    figures = ModelFigures(cores_per_socket=96, gpu_tflops=989, gpu_curve_mw=H100_MW)
    assert found.figures == figures
    assert replace(found, figures=own.figures, gpu_vendor="") == own


@pytest.mark.parametrize(("watts", "low_mw"), [(400, 320_000), (320, 320_000), (300, 0)])
def test_a_discovery_with_a_maximum_only_gets_the_vendors_minimum(watts: int, low_mw: int) -> None:
    found = with_catalog_figures(hardware("n", watts=watts), CATALOG)

    assert found.cpu_min_mw_per_socket == low_mw
    assert found.cpu_max_mw_per_socket == watts * 1000
    assert found.figures.cpu_cap_mw_per_socket == 0


def test_unknown_hardware_keeps_its_missing_figures() -> None:
    unknown = discovered("Abacus", "Beads", gpus=1)

    assert with_catalog_figures(unknown, CATALOG) == unknown


def test_models_come_from_labels_and_the_rest_from_allocatable() -> None:
    seen = node_seen("n", cores=190, gpus=8)
    labels = {"joulie.io/hw.cpu-model": "AMD-EPYC-9654", "joulie.io/gpu.product": "NVIDIA-H200"}

    assert from_labels(replace(seen, labels=labels), CATALOG) == HardwareDiscovered(
        node="n",
        cpu_model="AMD EPYC 9654",
        cpu_sockets=1,
        cpu_cores=190,
        cpu_max_mw_per_socket=360_000,
        gpu_model="NVIDIA H200",
        gpu_count=8,
        gpu_max_mw=700_000,
        gpu_by_catalog=True,
        source="labels",
        cpu_min_mw_per_socket=320_000,
        gpu_vendor="nvidia",
        figures=ModelFigures(
            cores_per_socket=96, cpu_cap_mw_per_socket=400_000, gpu_tflops=989, gpu_curve_mw=H200_MW
        ),
    )


@pytest.mark.parametrize(("sockets", "counted"), [("4", 4), ("two", 2), ("", 2), ("9" * 50, 2)])
def test_an_invalid_socket_label_is_replaced_by_the_computed_number(
    sockets: str, counted: int
) -> None:
    labels = {"joulie.io/hw.cpu-model": "EPYC 9654", "joulie.io/hw.cpu-sockets": sockets}
    found = from_labels(replace(node_seen("n", cores=380), labels=labels), CATALOG)

    assert found is not None
    assert found.cpu_sockets == counted


def test_labels_with_invalid_numbers_are_listed() -> None:
    labels = {"joulie.io/hw.cpu-sockets": "2", "joulie.io/hw.gpu-count": "eight", "x": "y"}

    assert invalid_counts(labels) == {"joulie.io/hw.gpu-count": "eight"}


def test_a_node_without_hardware_labels_has_no_discovery() -> None:
    assert from_labels(node_seen("n"), CATALOG) is None


def test_labels_never_replace_a_discovery() -> None:
    by_labels = replace(hardware("n", watts=1), source="labels")
    own, other = hardware("n", watts=720), replace(by_labels, cpu_max_mw_per_socket=2000)

    assert folded(by_labels, other) == other
    assert folded(by_labels, own, by_labels) == own


def folded(*found: HardwareDiscovered) -> HardwareDiscovered | None:
    draft = Draft(ClusterState())
    fold(draft, records(*found), 0)
    node = draft.nodes.get("n")
    return node.hardware if node else None


def test_a_name_is_split_into_words() -> None:
    assert words("Intel(R)_Xeon(TM) Gold-6338") == ("intel", "xeon", "gold", "6338")
    assert isinstance(CATALOG, Catalog)
