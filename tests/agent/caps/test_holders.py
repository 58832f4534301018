"""Who has a card while no order says so: the kubelet, or nobody knows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_agent.caps.holders import KubeletPods, safe_of
from joulie_agent.sources.host import Host
from joulie_bus.events import CapOrder, SafeCard

pytestmark = pytest.mark.anyio


async def test_no_pod_is_known_while_the_kubelet_does_not_answer(tmp_path: Path) -> None:
    """Both times: the silence is told once, and asked for each time."""
    pods = KubeletPods(Host(tmp_path))
    assert await pods() == {}
    assert await pods() == {}


def test_the_safe_cap_of_a_card_comes_beside_those_of_the_node() -> None:
    order = CapOrder(
        node="n1",
        plan="p",
        view=1,
        safe_cpu_mw_per_socket=100_000,
        safe_cards={"GPU-1": SafeCard(mw=200_000, pods=("t/a",))},
    )
    safe = safe_of(order, {"GPU-1": ["t/a"]})
    assert (safe.cpu_uw, safe.gpu_mw, safe.of("gpu", "GPU-1")) == (100_000_000, None, 200_000)
    assert not safe_of(order, {"GPU-1": ["t/a", "t/b"]}).has("gpu")


NAMES = st.sets(st.sampled_from(["t/a", "t/b", "t/performs"]))


@given(NAMES, NAMES, NAMES)
def test_a_card_of_dra_has_its_safe_cap_only_while_named_pods_alone_have_it(
    named: set[str], by_plugin: set[str], by_claim: set[str]
) -> None:
    """The kubelet names a device that DRA gave out by driver, pool and device."""
    name = "gpu.nvidia.com/n1/gpu-0"
    order = CapOrder(
        node="n1",
        plan="p",
        view=1,
        safe_cards={"GPU-1": SafeCard(mw=200_000, pods=tuple(sorted(named)), device=name)},
    )
    has = by_plugin | by_claim
    another = {"gpu.nvidia.com/n2/gpu-0": ["t/other"], "net.example.com/n1/gpu-0": ["t/other"]}
    safe = safe_of(order, {"GPU-1": sorted(by_plugin), name: sorted(by_claim), **another})
    assert safe.has("gpu") == (bool(has) and has <= named)


def test_a_card_whose_device_is_not_known_has_no_safe_cap_by_a_claim() -> None:
    """A card in parts: the kubelet names the part, and no source names the card of it."""
    card = SafeCard(mw=200_000, pods=("t/a",))
    order = CapOrder(node="n1", plan="p", view=1, safe_cards={"GPU-1": card})
    assert not safe_of(order, {"gpu.nvidia.com/n1/gpu-0": ["t/a"], "": ["t/a"]}).has("gpu")
