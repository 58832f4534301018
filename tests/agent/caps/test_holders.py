"""Who has a card while no order says so: the kubelet, or nobody knows."""

from pathlib import Path

import pytest

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
