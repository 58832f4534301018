"""The GPU annotations of a pod: both spellings, and invalid values."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.errors import BadAnnotation
from joulie_bus.events import GpuAsk, PodAsk
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.gpu_request import MODEL, SHARE, TOPOLOGY, VRAM_MB, gpu_ask_of
from joulie_projections.pods.kubernetes_pod import Pod

OLD_MODEL, OLD_VRAM = "gpu-extender.mle.com/model", "gpu-extender.mle.com/vram-mb"
NEW_MODEL, NEW_VRAM = "joulie.io/gpu-model", "joulie.io/gpu-vram-mb"


def pod_with(annotations: dict[str, str], *gpus: int) -> PodAsk:
    """The ask of a pod with one container for each number of cards."""
    containers = [{"resources": {"limits": {"nvidia.com/gpu": count}}} for count in gpus]
    manifest = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
    return ask_of(msgspec.convert(manifest, Pod))


@pytest.mark.parametrize(
    ("annotations", "ask"),
    [
        pytest.param({}, GpuAsk(), id="no annotation"),
        pytest.param(
            {OLD_MODEL: "NVIDIA-A100-SXM4-40GB", OLD_VRAM: "30000"},
            GpuAsk(model="NVIDIA-A100-SXM4-40GB", vram_mb=30_000),
            id="the old spelling",
        ),
        pytest.param(
            {NEW_MODEL: " A100 ", NEW_VRAM: "30000"},
            GpuAsk(model="A100", vram_mb=30_000),
            id="new",
        ),
        pytest.param({OLD_VRAM: "1"}, GpuAsk(vram_mb=1), id="memory alone"),
        pytest.param({NEW_MODEL: "H100"}, GpuAsk(model="H100"), id="a model alone"),
        pytest.param(
            {NEW_MODEL: "H100", OLD_VRAM: "5"},
            GpuAsk(model="H100", vram_mb=5),
            id="mixed",
        ),
        pytest.param(
            {OLD_MODEL: "H100", NEW_MODEL: "H100"}, GpuAsk(model="H100"), id="both spellings, equal"
        ),
        pytest.param({TOPOLOGY[0]: "nvlink"}, GpuAsk(topology="nvlink"), id="linked cards"),
        pytest.param({SHARE[0]: "0.25"}, GpuAsk(share_milli=250), id="a share"),
        pytest.param({SHARE[0]: "1"}, GpuAsk(share_milli=1000), id="a whole one"),
    ],
)
def test_annotations_are_parsed_into_a_gpu_ask(annotations: dict[str, str], ask: GpuAsk) -> None:
    assert gpu_ask_of(annotations) == ask


MEGABYTES = ("", "30GB", "-1", "0", "1e4", "3.5", "\u0663", "9" * 40)
BAD = [
    *((name, text) for name in VRAM_MB for text in MEGABYTES),
    *((name, " ") for name in MODEL),
    *((TOPOLOGY[0], text) for text in ("", "NVLink", "pcie")),
    *((SHARE[0], text) for text in ("", "0", "1.5", "half", "25%", "-0.5", "nan")),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_an_invalid_annotation_is_an_error_that_names_it_and_the_expected_form(
    name: str, text: str
) -> None:
    with pytest.raises(BadAnnotation, match=f"annotation {name} says .* Write ") as raised:
        gpu_ask_of({name: text})

    assert raised.value.name == name


def test_two_spellings_with_different_values_are_an_error() -> None:
    with pytest.raises(BadAnnotation, match=f"the same value as {OLD_VRAM}, which is '2'"):
        gpu_ask_of({NEW_VRAM: "1", OLD_VRAM: "2"})


def test_a_pod_with_an_invalid_annotation_has_an_ask_that_names_it() -> None:
    pod = pod_with({NEW_MODEL: "A100", OLD_VRAM: "lots"}, 1)

    assert (pod.gpu, pod.gpu_milli) == (GpuAsk(unreadable=OLD_VRAM), 1000)


def test_cards_of_all_containers_add_up() -> None:
    pod = pod_with({NEW_MODEL: "A100", NEW_VRAM: "30000", TOPOLOGY[0]: "nvlink"}, 1, 2)

    assert (pod.gpu_cards, pod.gpu_milli) == (3, 3000)
    assert (pod.gpu.model, pod.gpu.vram_mb, pod.gpu.topology) == ("A100", 30_000, "nvlink")


def test_a_pod_that_shares_a_card_asks_for_its_share() -> None:
    pod = pod_with({SHARE[0]: "0.25"})

    assert (pod.gpu_milli, pod.gpu_cards, pod.gpu.share_milli) == (250, 0, 250)


@given(text=st.text(max_size=20), name=st.sampled_from([*MODEL, *VRAM_MB, *TOPOLOGY, *SHARE]))
@settings(deadline=None, max_examples=100)
def test_any_annotation_value_is_an_ask_or_an_error(text: str, name: str) -> None:
    pod = pod_with({name: text})

    assert (pod.gpu.unreadable == name) != (pod.gpu != GpuAsk(unreadable=pod.gpu.unreadable))
