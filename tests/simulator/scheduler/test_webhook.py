import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec
import pytest

from joulie_bus.runtime.ports import free_port
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.scheduler import webhook as webhook_module
from joulie_simulator.scheduler.scheduler import Placements, Registration, Scheduler
from joulie_simulator.scheduler.webhook import Webhook, WebhookFailed
from joulie_simulator.workload.workload import Job

pytestmark = pytest.mark.anyio


def ok(body: object) -> bytes:
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(encoded) + encoded


class Peer:
    """Answers each request with the next of its replies, byte for byte; then with nothing."""

    def __init__(self, replies: Sequence[bytes]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = free_port()
        self._replies = list(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length)))
                if not self._replies:
                    continue
                reply = self._replies.pop(0)
                writer.write(reply)
                if b"\r\n\r\n" not in reply or reply.endswith(b"cut"):
                    break
        writer.close()

    @property
    def verbs(self) -> list[str]:
        return [request.split()[1].decode() for request in self.requests]


@contextlib.asynccontextmanager
async def peer(*replies: bytes) -> AsyncGenerator[tuple[Peer, Webhook], None]:
    answering = Peer(replies)
    server = await asyncio.start_server(answering.serve, "127.0.0.1", answering.port)
    webhook = Webhook("127.0.0.1", answering.port)
    try:
        yield answering, webhook
    finally:
        await webhook.close()
        server.close()
        await server.wait_closed()


async def test_a_request_has_kube_schedulers_headers_and_body() -> None:
    async with peer(ok({})) as (answering, webhook):
        await webhook.call("filter", {"Pod": {}, "Nodes": None, "NodeNames": ["n0"]})

    [request] = answering.requests
    head, _, body = request.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    assert first == b"POST /filter HTTP/1.1"
    assert sorted(fields) == [
        b"Accept-Encoding: gzip",
        b"Content-Length: 42",
        b"Content-Type: application/json",
        b"Host: 127.0.0.1:%d" % answering.port,
        b"User-Agent: Go-http-client/1.1",
    ]
    assert body == b'{"Pod":{},"Nodes":null,"NodeNames":["n0"]}'


async def test_calls_share_a_connection_until_the_server_says_close() -> None:
    closing = ok({}).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with peer(ok({}), closing, ok({})) as (answering, webhook):
        for _ in range(3):
            await webhook.call("filter", {})

    assert (len(answering.requests), answering.connections) == (3, 2)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "code 500"),
        (ok({}).replace(b"200 OK", b"201 Created"), "code 201"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{cut", "received 4 of 50"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "ServerDisconnectedError"),
        (ok(b"<html>"), "malformed"),
        (b"HTTP/1.1 fine\r\n\r\n", "fine"),
        (b"x" * 70_000 + b"\r\n\r\n", "Bad status line"),
    ],
    ids=["500", "201", "cut", "cut head", "no JSON", "no code", "endless head"],
)
async def test_a_failed_call_names_the_reason(reply: bytes, error: str) -> None:
    async with peer(reply) as (_, webhook):
        with pytest.raises(WebhookFailed, match=f"^filter: .*{error}"):
            await webhook.call("filter", {})


async def test_a_connection_is_kept_after_an_error_that_is_a_whole_reply() -> None:
    async with peer(ok({}).replace(b"200", b"503"), ok({"x": 1})) as (answering, webhook):
        with pytest.raises(WebhookFailed):
            await webhook.call("filter", {})
        reply = await webhook.call("filter", {})

    assert (reply, answering.connections) == ({"x": 1}, 1)


async def test_a_call_after_a_reply_that_was_cut_opens_a_new_connection() -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{cut"
    async with peer(cut, ok({"x": 1})) as (answering, webhook):
        with pytest.raises(WebhookFailed):
            await webhook.call("filter", {})
        reply = await webhook.call("filter", {})

    assert (reply, answering.connections) == ({"x": 1}, 2)


@pytest.mark.parametrize("replies", [[], [b"\r\n\r\n"], [b"HTTP/1.1 200 OK\r\n\r\n"]])
async def test_a_call_to_a_hanging_server_times_out(
    replies: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "CALL_TIMEOUT_S", 0.05)
    async with peer(*replies) as (_, webhook):
        with pytest.raises(WebhookFailed, match="filter: TimeoutError"):
            await webhook.call("filter", {})


async def test_a_call_to_an_unreachable_server_fails() -> None:
    with pytest.raises(WebhookFailed, match=r"^filter: .*Connect call failed"):
        await Webhook("127.0.0.1", free_port()).call("filter", {})


# --- kube-scheduler's use of the answers --------------------------------------------------------

NAMES = ["cpu-genoa-0000", "cpu-milan-0001", "cpu-genoa-0002"]
SERVER_ERROR = ok({}).replace(b"200 OK", b"500 No")


async def placed(
    *replies: bytes, taken: Mapping[str, float] | None = None
) -> tuple[str | None, Peer]:
    """The node of a job among three nodes, some with cores in use."""
    cluster = SimCluster(3)
    assert list(cluster.nodes) == NAMES
    for name, cores in (taken or {}).items():
        cluster.nodes[name].take(job(cores), 0)
    async with peer(*replies) as (answering, webhook):
        chosen = await Scheduler(cluster, webhook, random.Random(1)).place(job(1))
    return chosen, answering


def job(cores: float) -> Job:
    return Job("u", "u", "team", "", cores, 1024, 0, 10.0, 0.5)


def passing(*names: str) -> bytes:
    return ok({"NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}})


def scores(*values: int) -> bytes:
    pairs = zip(NAMES, values, strict=True)
    return ok([{"Host": name, "Score": score} for name, score in pairs])


async def test_the_highest_total_wins() -> None:
    # Half the cores taken cost 25 points of each plugin; a point of the extender is worth 10.
    emptier = {NAMES[0]: 96, NAMES[1]: 128}
    near, _ = await placed(passing(*NAMES), scores(4, 0, 0), taken=emptier)
    ahead, _ = await placed(passing(*NAMES), scores(6, 0, 0), taken=emptier)

    assert (near, ahead) == (NAMES[2], NAMES[0])


async def test_without_an_extender_the_plugins_decide_alone() -> None:
    cluster = SimCluster(3)
    for name in NAMES[:2]:
        cluster.nodes[name].take(job(9), 0)

    assert await Scheduler(cluster, None, random.Random(1)).place(job(1)) == NAMES[2]


async def test_only_nodes_that_passed_are_scored() -> None:
    name, answering = await placed(passing(NAMES[1], NAMES[2]), scores(100, 1, 0))

    assert name == NAMES[1]
    asked = msgspec.json.decode(answering.requests[1].partition(b"\r\n\r\n")[2])
    assert asked["NodeNames"] == NAMES[1:]


async def test_one_candidate_is_not_prioritized() -> None:
    name, answering = await placed(passing(NAMES[1]))

    assert (name, answering.verbs) == (NAMES[1], ["/filter"])


@pytest.mark.parametrize("reply", [passing(), ok({}), ok({"NodeNames": None})])
async def test_without_a_candidate_the_pod_stays_pending(reply: bytes) -> None:
    name, answering = await placed(reply)

    assert (name, answering.verbs) == (None, ["/filter"])


@pytest.mark.parametrize("failure", [SERVER_ERROR, ok({"Error": "not now", "NodeNames": []})])
async def test_a_failed_filter_is_ignored(failure: bytes) -> None:
    name, answering = await placed(failure, scores(0, 0, 50))

    assert (name, answering.verbs) == (NAMES[2], ["/filter", "/prioritize"])


async def test_a_failed_prioritize_loses_only_the_scores() -> None:
    name, _ = await placed(passing(*NAMES), SERVER_ERROR, taken={NAMES[0]: 9, NAMES[1]: 9})

    assert name == NAMES[2]


@pytest.mark.parametrize(
    ("replies", "unanswered"),
    [
        ([passing(*NAMES), scores(0, 0, 50)], 0),
        ([passing(NAMES[1])], 0),
        ([SERVER_ERROR, scores(0, 0, 50)], 1),
        ([passing(*NAMES), SERVER_ERROR], 1),
    ],
    ids=["answered", "one node left", "no filter", "no scores"],
)
async def test_pods_bound_without_an_answer_are_counted(
    replies: list[bytes], unanswered: int
) -> None:
    async with peer(*replies) as (_, webhook):
        scheduler = Scheduler(SimCluster(3), webhook, random.Random(1))
        node = await scheduler.place(job(1))
        assert node is not None
        await scheduler.bind(job(1), node)

    assert scheduler.placements == Placements(bound=1, unanswered=unanswered)


WITH_CARDS = Job("uid-1", "train", "team", "", 1, 1024, 2, 60, 0.5)


async def test_a_binding_extender_receives_pod_and_node() -> None:
    async with peer(ok({"Error": ""})) as (answering, webhook):
        scheduler = Scheduler(
            SimCluster(1), webhook, random.Random(1), Registration(bind="gpu/bind")
        )
        is_bound = await scheduler.bind(WITH_CARDS, "n1")

    assert (is_bound, answering.verbs) == (True, ["/gpu/bind"])
    assert answering.requests[0].endswith(
        b'{"PodName":"train","PodNamespace":"team","PodUID":"uid-1","Node":"n1"}'
    )


@pytest.mark.parametrize(
    "reply",
    [ok({"Error": "the cards are gone"}), b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"],
    ids=["refused", "failed"],
)
async def test_a_pod_that_the_extender_did_not_bind_stays_pending(reply: bytes) -> None:
    async with peer(reply) as (_, webhook):
        scheduler = Scheduler(
            SimCluster(1), webhook, random.Random(1), Registration(bind="gpu/bind")
        )

        assert not await scheduler.bind(WITH_CARDS, "n1")


@pytest.mark.parametrize(
    ("bind", "job"),
    [("", WITH_CARDS), ("gpu/bind", WITH_CARDS._replace(gpus=0))],
    ids=["nothing configured", "no cards asked for"],
)
async def test_pods_without_gpus_are_bound_by_the_scheduler(bind: str, job: Job) -> None:
    async with peer() as (answering, webhook):
        scheduler = Scheduler(SimCluster(1), webhook, random.Random(1), Registration(bind=bind))
        is_bound = await scheduler.bind(job, "n1")

    assert (is_bound, answering.requests) == (True, [])
