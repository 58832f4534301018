import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from joulie_bus import codec
from joulie_bus.embedded import free_port
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.subjects import Stream
from joulie_bus.tasks import background, rung
from joulie_bus.testing import CLUSTER
from joulie_operator.kube import ApiServer
from joulie_operator.watch import watch_cluster
from joulie_projections.view import View

pytestmark = pytest.mark.anyio
PATIENCE_S = 20
RECORDINGS = Path(__file__).parents[1] / "data/kube-api"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


class Reply(NamedTuple):
    status: int
    body: bytes


def recorded(number: str) -> Reply:
    """What a real API server once replied."""
    [path] = RECORDINGS.glob(f"{number}-*.http")
    head, _, body = path.read_bytes().partition(b"---- reply")[2].partition(b"\n\n")
    return Reply(int(head.split()[1]), body.strip())


class Script(NamedTuple):
    """One watch: what is said, and how it ends (held open until the server is closed, or cut)."""

    reply: Reply
    ending: str = "hold"


def lines(number: str, first: int = 0, last: int | None = None) -> Reply:
    return Reply(200, b"\n".join(recorded(number).body.splitlines()[first:last]))


class StandIn:
    """Plays recordings of an API server; `pages` are lists, `scripts` watches, one per request."""

    def __init__(self) -> None:
        self.port = free_port()
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self.troubles: deque[Reply] = deque()  # answers to the next lists, before they work
        self.scripts: dict[str, deque[Script]] = defaultdict(deque)
        last = json.loads(recorded("06").body)
        last["metadata"]["continue"] = ""
        first = json.loads(recorded("05").body)
        pod = json.loads(recorded("39").body)
        self.pages: dict[tuple[str, str], Any] = {
            (NODES, ""): first,
            (NODES, first["metadata"]["continue"]): last,
            (PODS, ""): {"metadata": {"resourceVersion": "228"}, "items": [pod]},
        }
        self._closing = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        self._closing = asyncio.Event()
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield
        finally:
            self._closing.set()
            await runner.cleanup()

    def lists(self, path: str = NODES) -> int:
        return self.asked.count(path)

    def watches(self, path: str = NODES) -> list[str]:
        """The versions from which it was watched."""
        return [ask.partition("@")[2] for ask in self.asked if ask.startswith(f"{path}@")]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.add(request.headers.get("Authorization", ""))
        if request.query.get("watch") == "true":
            return await self._watched(request)
        more = request.query.get("continue", "")
        if not more:
            self.asked.append(request.path)
        if self.troubles and request.path == NODES:
            trouble = self.troubles.popleft()
            return web.Response(status=trouble.status, body=trouble.body)
        return web.json_response(self.pages[request.path, more])

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.path}@{request.query['resourceVersion']}")
        scripts = self.scripts[request.path]
        script = scripts.popleft() if scripts else Script(Reply(200, b""))
        response = web.StreamResponse(status=script.reply.status)
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in script.reply.body.splitlines():
            if not _is_old(line, int(request.query["resourceVersion"])):
                await response.write(line + b"\n")
        if script.ending == "hold" and script.reply.status == 200:
            await self._closing.wait()
        elif script.ending == "cut" and request.transport is not None:
            request.transport.abort()
        return response


def _is_old(line: bytes, since: int) -> bool:
    """A watch never says again what its version knows."""
    version = json.loads(line).get("object", {}).get("metadata", {}).get("resourceVersion")
    return version is not None and int(version) <= since


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
"""


@contextlib.asynccontextmanager
async def watching(
    server: StandIn, bus: JetStreamLog, view: View, directory: Path
) -> AsyncGenerator[None, None]:
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=server.port))
    async with (
        ApiServer.of(kubeconfig) as api,
        background(watch_cluster(api, bus, CLUSTER, view), "watch"),
    ):
        yield


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def told(bus: JetStreamLog, about: str) -> list[tuple[str, str]]:
    """Type and key of every fact in the log about nodes, or about pods."""
    count, bell = (await bus.state(Stream.OBS)).last, asyncio.Event()
    facts: list[tuple[str, str]] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        bus.reading(Stream.OBS, 0, bell=bell) as reader,
    ):
        while len(facts) < count:
            await rung(bell, 0.5)
            found = [codec.open_envelope(record.data, "") for record in reader.take(1000)]
            facts += [(envelope.type, envelope.key) for envelope in found]
    return [(kind, key) for kind, key in facts if kind.startswith(about)]


def names(view: View) -> list[str]:
    return sorted(name for name, node in view.world.nodes.items() if node.present)


LISTED = ["node-a1", "node-a2", "node-a3", "node-a5"]
FOLLOWED = [  # from the lists 05 and 06 through the watch 09
    *[("node.seen", name) for name in LISTED],
    *[("node.seen", "node-a1")] * 2,
    ("node.seen", "node-a6"),
    ("node.gone", "node-a6"),
]
P1 = "d2c18e22-c5cf-4236-b96e-4309e6c787ae"


async def test_a_list_of_several_pages_ends_up_in_the_view(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: names(view) == LISTED and P1 in view.world.pods)

    seen = view.world.nodes["node-a1"]
    assert (seen.labels, seen.ready, seen.schedulable) == (
        {"joulie.io/managed": "true"},
        True,
        True,
    )
    assert (seen.cpu_milli, seen.memory_bytes, seen.gpus) == (95_500, 501 * 2**30, 8)
    assert view.world.pods[P1].pod.workload == "performance"
    assert server.tokens == {"Bearer secret"}


async def test_nodes_that_change_come_and_go_are_followed(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    server.scripts[NODES].append(Script(recorded("09")))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: view.position == len(FOLLOWED) + 1)
        facts = await told(bus, "node.")

    changed = view.world.nodes["node-a1"]
    assert (changed.labels["joulie.io/power-profile"], changed.schedulable) == ("eco", False)
    assert facts == FOLLOWED


async def test_a_pod_is_followed_from_its_creation_to_its_end(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    server.scripts[PODS].append(Script(recorded("40")))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: names(view) == LISTED and len(server.watches(PODS)) == 1)
        await until(lambda: view.position >= len(LISTED) + 4)

    facts = [kind for kind, _ in await told(bus, "pod.")]
    assert facts == ["pod.pending", "pod.bound", "pod.finished", "pod.gone"]
    assert (view.world.pods, view.world.nodes["node-a1"].pods) == ({}, 0)


async def test_a_past_that_is_gone_is_listed_again_and_nothing_is_told_twice(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    for number in ("49", "50"):  # as an event, and as a status
        server.scripts[NODES].append(Script(recorded(number), "end"))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: len(server.watches()) == 3)

    assert server.lists() == 3
    assert await told(bus, "node.") == [("node.seen", name) for name in LISTED]


@pytest.mark.parametrize("number", ["32", "50"], ids=["unauthorized", "gone"])
async def test_a_refused_list_is_tried_again(
    bus: JetStreamLog, view: View, tmp_path: Path, number: str
) -> None:
    server = StandIn()
    server.troubles.append(recorded(number))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: names(view) == LISTED)

    assert server.lists() == 2


@pytest.mark.parametrize("ending", ["cut", "end"])
async def test_a_watch_that_ends_goes_on_from_where_it_was(
    bus: JetStreamLog, view: View, tmp_path: Path, ending: str
) -> None:
    server = StandIn()
    server.scripts[NODES].append(Script(lines("09", 0, 4), ending))
    server.scripts[NODES].append(Script(recorded("09")))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: view.position == len(FOLLOWED) + 1)
        facts = await told(bus, "node.")

    assert (server.lists(), len(server.watches())) == (1, 2)
    assert facts == FOLLOWED


async def test_what_happened_during_an_outage_is_told_after_it(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    async with watching(server, bus, view, tmp_path):
        async with server.listening():
            await until(lambda: names(view) == LISTED)
        server.scripts[NODES].append(Script(recorded("49"), "end"))
        server.pages[NODES, ""]["items"].pop(0)
        async with server.listening():
            await until(lambda: names(view) == LISTED[1:])

    facts = await told(bus, "node.")
    assert facts == [*[("node.seen", name) for name in LISTED], ("node.gone", "node-a1")]


async def test_what_the_log_believed_before_is_compared_with_the_first_list(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    async with server.listening():
        async with watching(server, bus, view, tmp_path):
            await until(lambda: names(view) == LISTED and P1 in view.world.pods)
        server.pages[NODES, ""]["items"].pop(0)
        server.pages[PODS, ""]["items"].clear()
        async with watching(server, bus, view, tmp_path):
            await until(lambda: names(view) == LISTED[1:] and not view.world.pods)


async def test_an_object_that_makes_no_sense_keeps_nobody_else_from_being_told(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = StandIn()
    server.pages[NODES, ""]["items"][0]["status"]["allocatable"]["cpu"] = "lots"
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: names(view) == LISTED[1:])


async def test_an_object_may_be_as_large_as_the_server_stores_them(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    changed = json.loads(recorded("09").body.splitlines()[0])
    changed["object"]["metadata"]["annotations"] = {"big": "x" * 1_500_000}
    server = StandIn()
    server.scripts[NODES].append(Script(Reply(200, json.dumps(changed).encode())))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: names(view) == LISTED)
        await until(lambda: "joulie.io/power-profile" in view.world.nodes["node-a1"].labels)
