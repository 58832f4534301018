"""The PodResources API over a real socket."""

from pathlib import Path

import pytest
from grpclib.server import Server
from hypothesis import given
from hypothesis import strategies as st

from answering_kubelet import Kubelet
from joulie_agent.kubelet.grpc_call import RawBytes
from joulie_agent.kubelet.pod_resources import (
    Assigned,
    KubeletSilent,
    assigned,
    holders,
)
from joulie_agent.kubelet.wire import BadMessage, Messages
from pod_resources_wire import field

pytestmark = pytest.mark.anyio


PLUGIN = field(2, field(1, "nvidia.com/gpu") + field(2, "GPU-1", "GPU-2"))
CPU_IDS = bytes([3 << 3]) + bytes([5])
CLAIM = field(
    5, field(2, "claim") + field(4, field(2, "gpu.nvidia.com") + field(3, "n1") + field(4, "gpu-0"))
)
TWO_PODS = field(
    1,
    field(1, "train-0") + field(2, "team-a") + field(3, field(1, "main") + PLUGIN + CPU_IDS),
    field(1, "infer") + field(2, "team-b") + field(3, field(1, "main") + CLAIM),
)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def answered(socket: Path, reply: bytes) -> list[Assigned]:
    server = Server([Kubelet(reply)], codec=RawBytes())
    await server.start(path=str(socket))
    try:
        return await assigned(socket)
    finally:
        server.close()
        await server.wait_closed()


async def test_devices_of_plugins_and_of_claims_name_their_pods(socket: Path) -> None:
    given = await answered(socket, TWO_PODS)
    assert given == [
        Assigned("team-a", "train-0", "main", "nvidia.com/gpu", "GPU-1"),
        Assigned("team-a", "train-0", "main", "nvidia.com/gpu", "GPU-2"),
        Assigned("team-b", "infer", "main", "gpu.nvidia.com", "gpu.nvidia.com/n1/gpu-0"),
    ]
    assert holders(given)["GPU-2"] == ["team-a/train-0"]


async def test_a_node_without_pods_has_no_devices(socket: Path) -> None:
    assert await answered(socket, b"") == []


async def test_an_answer_that_is_no_message_is_an_error_with_the_socket(socket: Path) -> None:
    with pytest.raises(KubeletSilent, match=r"kubelet\.sock: field 1 is longer"):
        await answered(socket, TWO_PODS[:-3])


async def test_without_a_kubelet_the_socket_is_named(socket: Path) -> None:
    with pytest.raises(KubeletSilent, match="there is no such socket"):
        await assigned(socket)


async def test_a_socket_without_a_listener_is_an_error_and_no_hang(socket: Path) -> None:
    socket.touch()
    with pytest.raises(KubeletSilent):
        await assigned(socket)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        for number, _ in Messages().fields(data):
            assert number >= 0
    except BadMessage:
        pass
