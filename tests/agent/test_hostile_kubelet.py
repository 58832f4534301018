"""A program in the place of the kubelet that answers with what no kubelet answers: the agent gives
up in time, holds a bounded size, names the socket in one line, and its last answer counts."""

import asyncio
import contextlib
import resource
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import pytest
from grpclib.server import Server

import host_trees
from answering_kubelet import Kubelet
from joulie_agent.inventory import Inventory
from joulie_agent.kubelet import pod_resources
from joulie_agent.kubelet.grpc_call import RawBytes
from joulie_agent.kubelet.pod_resources import SOCKET, KubeletSilent, pods_of_cards
from joulie_agent.sources.host import Host
from joulie_projections.catalog_file import shipped_catalog
from pod_resources_wire import field

pytestmark = pytest.mark.anyio
PATIENCE_S = 1.0
MOST_S = 30.0  # on a busy machine; what is not bounded does not end at all
MOST_MIB = 64
UUID = "GPU-60e5a5f1-0000-4000-8000-000000000001"


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """Of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


SETTINGS, PING, HEADERS, CONTINUATION, DATA = 4, 6, 1, 9, 0
HELLO = frame(SETTINGS)
OK = bytes([0x88])  # :status 200, in the static table of HPACK
GRPC = bytes([0x0F, 0x10]) + bytes([16]) + b"application/grpc"  # content-type
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def no_http(writer: asyncio.StreamWriter) -> None:
    await endless(writer, b"220 mail.example ESMTP\r\n")


async def settings_and_silence(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)
    await asyncio.sleep(60)


async def endless_pings(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)
    await endless(writer, frame(PING, bytes(8)) * 1000)


async def endless_settings(writer: asyncio.StreamWriter) -> None:
    await endless(writer, HELLO * 1000)


async def endless_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO + frame(HEADERS, OK, 0, 1))
    await endless(writer, frame(CONTINUATION, bytes(1000), 0, 1))


async def a_message_without_end(writer: asyncio.StreamWriter) -> None:
    """Which says that it has 4 GiB; the window of the client never closes."""
    writer.write(HELLO + frame(HEADERS, OK + GRPC, 4, 1))
    writer.write(frame(DATA, b"\0\xff\xff\xff\xff", 0, 1))
    await endless(writer, frame(DATA, bytes(16_000), 0, 1))


async def a_trickled_message(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO + frame(HEADERS, OK + GRPC, 4, 1))
    while True:
        writer.write(frame(DATA, b"\0", 0, 1))
        await asyncio.sleep(0.05)


async def half_a_message(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO + frame(HEADERS, OK + GRPC, 4, 1))
    writer.write(frame(DATA, b"\0\0\0\0\x09half", 1, 1))
    await asyncio.sleep(60)


async def a_compressed_message(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO + frame(HEADERS, OK + GRPC, 4, 1))
    writer.write(frame(DATA, b"\1\0\0\0\x04gzip", 1, 1))
    await asyncio.sleep(60)


async def no_message(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO + frame(HEADERS, OK + GRPC, 5, 1))
    await asyncio.sleep(60)


async def endless(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()


RAW: tuple[Answer, ...] = (
    *(silence, hang_up, no_http, settings_and_silence, endless_pings, endless_settings),
    *(endless_headers, a_message_without_end, a_trickled_message, half_a_message),
    *(a_compressed_message, no_message),
)


@contextlib.asynccontextmanager
async def program(path: Path, answer: Answer) -> AsyncGenerator[None]:
    """Something that listens on the socket of the kubelet."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await reader.read(1 << 16)
            swallow = asyncio.create_task(swallowed(reader))
            try:
                await answer(writer)
            finally:
                swallow.cancel()
                writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()


async def swallowed(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


@contextlib.asynccontextmanager
async def kubelet(path: Path, reply: bytes) -> AsyncGenerator[None]:
    server = Server([Kubelet(reply)], codec=RawBytes())
    await server.start(path=str(path))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def pod(name: str, *devices: str, namespace: str = "team") -> bytes:
    plugin = field(2, field(1, "nvidia.com/gpu") + field(2, *devices))
    return field(1, name) + field(2, namespace) + field(3, field(1, "main") + plugin)


@pytest.fixture
def short_path() -> Generator[Path]:
    """The address of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="host-") as made:
        yield Path(made)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "PATIENCE_S", PATIENCE_S)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", RAW, ids=lambda answer: answer.__name__)
async def test_a_program_that_is_no_kubelet_is_given_up_in_time_with_the_socket(
    answer: Answer, tmp_path: Path
) -> None:
    socket, before, began = tmp_path / "kubelet.sock", peak_mib(), time.monotonic()
    async with program(socket, answer):
        with pytest.raises(KubeletSilent, match=r"kubelet\.sock: .") as raised:
            await pods_of_cards(socket)
    print(answer.__name__, raised.value, time.monotonic() - began, peak_mib() - before)
    assert time.monotonic() - began < MOST_S
    assert peak_mib() - before < MOST_MIB
    assert "\n" not in str(raised.value)


MANY = 100_000
REPLIES: dict[str, Callable[[], bytes]] = {  # made by its test: some take a second
    "empty fields": lambda: field(1, b"") * 2_000_000,
    "one card of many pods": lambda: field(1, *(pod(f"p{n}", UUID) for n in range(MANY))),
    "many cards of one pod": lambda: field(1, pod("p", *(f"GPU-{n}" for n in range(MANY)))),
    "a line end in a name": lambda: field(1, pod("a\nb", UUID)),
    "an escape in a namespace": lambda: field(1, pod("a", UUID, namespace="\x1b[2J")),
    "a path as a namespace": lambda: field(1, pod("a", UUID, namespace="../x")),
    "a long name": lambda: field(1, pod("a" * 1000, UUID)),
    "no name": lambda: field(1, pod("", UUID)),
    "a huge message": lambda: field(1, pod("p", UUID), pod("q", "x" * (64 << 20))),
    "a text that is not UTF-8": lambda: field(1, field(1, b"\xff") + field(2, "team")),
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
async def test_an_answer_that_no_kubelet_gives_is_refused_as_a_whole(
    reply: Callable[[], bytes], tmp_path: Path
) -> None:
    socket, answer = tmp_path / "kubelet.sock", reply()
    began = time.monotonic()
    async with kubelet(socket, answer):
        with pytest.raises(KubeletSilent, match=r"kubelet\.sock: .") as raised:
            await pods_of_cards(socket)
    print(raised.value, time.monotonic() - began)
    assert time.monotonic() - began < MOST_S
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 500


async def test_after_such_an_answer_the_last_one_counts(short_path: Path) -> None:
    """A card that is in use does not become free because of it."""
    root = host_trees.instinct(short_path, cards=1)
    card, socket = "GPU-8b9c3d2e1f000000", root / SOCKET
    socket.parent.mkdir(parents=True)
    inventory = Inventory("n1", Host(root), shipped_catalog())
    for reply in (pod("train", card), pod("a\nb", card)):
        async with kubelet(socket, field(1, reply)):
            found = await inventory.read(None)
        assert found.cards[0].holder == "team/train"


async def test_what_a_program_did_to_a_call_leaves_the_task_of_the_agent_as_it_was(
    tmp_path: Path,
) -> None:
    """grpclib cancels the task in which a connection ends."""
    async with program(tmp_path / "kubelet.sock", hang_up):
        with pytest.raises(KubeletSilent):
            await pods_of_cards(tmp_path / "kubelet.sock")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
