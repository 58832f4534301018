import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import pytest

from joulie_bus import codec
from joulie_bus.embedded import free_port
from joulie_bus.errors import PortTaken
from joulie_bus.events import DecisionEntry, FilterDecided
from joulie_bus.settings import HostPort
from joulie_bus.testing import NOON, SECOND, hardware
from joulie_extender.app import Extender, make_app
from joulie_extender.scoring import Weights
from joulie_extender.service import listening
from joulie_projections.board import Board
from joulie_projections.view import Snapshot
from joulie_projections.world import NodeState, Sample
from joulie_simulator.webhook import Webhook, WebhookFailed

pytestmark = pytest.mark.anyio
LIMIT = 10_000
NODES = {
    "n0": NodeState(
        ordinal=0,
        at=NOON,
        hardware=hardware("n0", cores=128, watts=700, gpus=8),
        profile="performance",
        samples=(Sample(NOON - 60 * SECOND, 460_400), Sample(NOON, 450_000)),
    ),
    "n1": NodeState(ordinal=1, at=NOON, hardware=hardware("n1"), profile="eco"),
    "n2": NodeState(ordinal=2, at=NOON - 400 * SECOND, hardware=hardware("n2")),
}
SNAPSHOT = Snapshot(17, Board.of(NODES, 0), 3)
POD = {"metadata": {"name": "p", "annotations": {"joulie.io/workload-class": "performance"}}}
ARGS: dict[str, Any] = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n0", "ghost"]}


class Reply(NamedTuple):
    status: int
    body: bytes


class Served(NamedTuple):
    port: int
    recorded: list[DecisionEntry]


@contextlib.asynccontextmanager
async def served(*, ready: bool = True) -> AsyncGenerator[Served, None]:
    recorded: list[DecisionEntry] = []

    def record(entry: DecisionEntry) -> None:
        codec.encode(entry)  # as whoever keeps it would
        recorded.append(entry)

    extender = Extender(lambda: SNAPSHOT, record, Weights(), lambda: NOON)
    port = free_port()
    async with listening(make_app(extender, lambda: ready, LIMIT), HostPort("127.0.0.1", port)):
        yield Served(port, recorded)


async def asked(port: int, verb: str, args: dict[str, Any] = ARGS) -> Any:
    """As kube-scheduler asks."""
    webhook = Webhook("127.0.0.1", port)
    try:
        return await webhook.call(verb, args)
    finally:
        await webhook.close()


async def exchange(port: int, request: bytes) -> Reply:
    """Writes the bytes as they are; the server closes, as it was asked to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
    writer.close()
    return Reply(int(head.split()[1]), body)


async def get(port: int, path: str) -> Reply:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    return await exchange(port, head.encode())


async def post(port: int, verb: str, body: bytes) -> Reply:
    head = f"POST /{verb} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    return await exchange(port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def test_filter_answers_over_a_real_socket() -> None:
    async with served() as extender:
        reply = await asked(extender.port, "filter")

    assert reply["NodeNames"] == ["n0", "ghost"]
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n1"]


async def test_prioritize_scores_every_name_with_a_whole_number() -> None:
    async with served() as extender:
        reply = await asked(extender.port, "prioritize")

    assert [entry["Host"] for entry in reply] == ARGS["NodeNames"]
    assert [type(entry["Score"]) for entry in reply] == [int, int, int]


async def test_one_connection_serves_many_calls() -> None:
    async with served() as extender:
        webhook = Webhook("127.0.0.1", extender.port)
        await webhook.call("filter", ARGS)
        first = webhook._streams
        for verb in ("prioritize", "filter", "prioritize"):
            await webhook.call(verb, ARGS)

        assert webhook._streams is first is not None
        await webhook.close()


async def test_every_answer_is_recorded_with_what_it_rests_on() -> None:
    async with served() as extender:
        await asked(extender.port, "filter")
        await asked(extender.port, "prioritize")

    assert [entry.TYPE for entry in extender.recorded] == [
        "decision.filter",
        "decision.prioritize",
    ]
    [decision, _] = extender.recorded
    assert isinstance(decision, FilterDecided)
    assert (decision.basis.view, decision.basis.view_age_ms, decision.basis.now) == (17, 3, NOON)


async def test_no_answer_is_given_that_was_not_recorded_before() -> None:
    def refuse(_: DecisionEntry) -> None:
        raise RuntimeError("nothing can be recorded")

    extender = Extender(lambda: SNAPSHOT, refuse, Weights(), lambda: NOON)

    with pytest.raises(RuntimeError, match="nothing can be recorded"):
        extender.filter(json.dumps(ARGS).encode())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not an ExtenderArgs"),
        (b"{}", "no Pod"),
        (b'{"Pod":{},"NodeNames":[1]}', "$.NodeNames[0]"),
        (
            b'{"Pod":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"lots"}}}]}}'
            b',"NodeNames":[]}',
            "quantity 'lots'",
        ),
    ],
    ids=["empty", "no pod", "a number as a name", "no quantity"],
)
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_garbage_is_refused_with_a_reason(verb: str, body: bytes, told: str) -> None:
    async with served() as extender:
        reply = await post(extender.port, verb, body)

    assert reply.status == 400
    assert told in json.loads(reply.body)["error"]
    assert extender.recorded == []


async def test_a_pod_that_asks_for_more_than_there_can_be_is_answered() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "9223372036854775807"}}}
    greedy = {**ARGS, "Pod": {"metadata": {"name": "p"}, "spec": {"containers": [container]}}}

    async with served() as extender:
        reply = await asked(extender.port, "prioritize", greedy)

    assert len(reply) == 3
    assert len(extender.recorded) == 1


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n"
    async with served() as extender:
        reply = await exchange(extender.port, f"{head}Connection: close\r\n\r\n".encode())

    assert reply.status == 413
    assert "EXTENDER_BODY_LIMIT" in json.loads(reply.body)["error"]


async def test_a_body_that_turns_out_too_large_is_refused_on_the_way() -> None:
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    chunk = f"{4096:x}\r\n".encode() + b"x" * 4096 + b"\r\n"
    async with served() as extender:
        reply = await exchange(extender.port, head + b"Connection: close\r\n\r\n" + chunk * 3)

    assert reply.status == 413


async def test_a_body_as_large_as_the_limit_is_read() -> None:
    body = json.dumps(ARGS).encode()
    async with served() as extender:
        reply = await post(extender.port, "filter", body + b" " * (LIMIT - len(body)))

    assert reply.status == 200


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readiness_waits_for_the_projection_and_liveness_does_not(
    ready: bool, status: int
) -> None:
    async with served(ready=ready) as extender:
        readiness = await get(extender.port, "/readyz")
        liveness = await get(extender.port, "/healthz")

    assert (readiness.status, liveness.status) == (status, 200)


async def test_the_debug_page_shows_what_a_score_is_made_of() -> None:
    async with served() as extender:
        shown = json.loads((await get(extender.port, "/debug/scoring")).body)

    assert shown["coefficients"] == {
        "cpuUtilCoeff": 0.7,
        "gpuUtilCoeffStandard": 0.65,
        "gpuUtilCoeffPerformance": 0.85,
        "memoryFactor": True,
    }
    assert (shown["position"], shown["viewAgeMs"]) == (17, 3)
    [first, *_] = shown["nodes"]
    assert first == {
        "nodeName": "n0",
        "schedulableClass": "performance",
        "headroom": 0.0,
        "coolingStress": 100.0,
        "measuredPowerW": 450.0,
        "cappedPowerW": 6300.0,
        "nodeTdpW": 6300.0,
        "powerTrendWPerMin": pytest.approx(-10.4),
        "baseScore": pytest.approx(0.7 * 5850 / 63 + 10.4 / 6),
        "cpuTotalCores": 128.0,
        "cpuMaxWattsTotal": 700.0,
        "gpuCount": 8,
        "gpuMaxWattsPerGpu": 700.0,
        "hasGpu": True,
        "assumedPowerW": 0.0,
        "stale": False,
    }


async def test_the_debug_page_lists_nodes_by_name_and_says_which_are_stale() -> None:
    async with served() as extender:
        shown = json.loads((await get(extender.port, "/debug/scoring")).body)

    told = [(node["nodeName"], node["stale"]) for node in shown["nodes"]]
    assert told == [("n0", False), ("n1", False), ("n2", True)]
    assert shown["nodes"][2]["baseScore"] == 50


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_verbs_are_posted(path: str) -> None:
    async with served() as extender:
        assert (await get(extender.port, path)).status == 405


async def test_a_taken_port_is_named() -> None:
    async with served() as extender:
        app = make_app(
            Extender(lambda: SNAPSHOT, list[DecisionEntry]().append, Weights(), lambda: NOON),
            lambda: True,
            LIMIT,
        )
        at = HostPort("127.0.0.1", extender.port)
        with pytest.raises(PortTaken, match=f"Nothing can listen on 127.0.0.1:{extender.port}"):
            async with listening(app, at):
                pass


async def test_the_port_is_free_again_at_the_end_of_the_block() -> None:
    async with served() as extender:
        webhook = Webhook("127.0.0.1", extender.port)
        await webhook.call("filter", ARGS)

    with pytest.raises(WebhookFailed):
        await webhook.call("filter", ARGS)
