"""The stand-in API server gives the recorded responses of a real one, request by request."""

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from joulie_bus.errors import BadName
from joulie_operator.kube.api_client import object_path, proxy_for
from kube_api import ADMIN, ApiServer

pytestmark = pytest.mark.anyio
RECORDINGS = sorted((Path(__file__).parents[2] / "data/kube-api").glob("*.http"))
TOKENS = {
    "<token of an administrator>": ADMIN,
    # The token of one recording is redacted: it was an invalid one.
    "<token of an account without rights>": "nobody",
}
_VARIES = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\(\d+\)")  # uids and versions


class Exchange(NamedTuple):
    method: str
    url: str
    headers: dict[str, str]
    body: str
    status: int
    reply: str

    @classmethod
    def read(cls, path: Path) -> "Exchange":
        request, _, reply = path.read_text().partition("---- reply")
        head, _, body = request.partition("\n\n")
        _, first, *lines = head.splitlines()
        method, url, _ = first.split()
        reply_head, _, reply_body = reply.strip().partition("\n\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        return cls(
            method, url, headers, body.strip(), int(reply_head.split()[1]), reply_body.strip()
        )

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.url


class Replay:
    """Translates versions, uids and tokens of the recorded server to those of the stand-in."""

    def __init__(self) -> None:
        self.actual: dict[str, str] = {}  # recorded to stand-in

    def translated(self, text: str) -> str:
        for recorded in sorted(self.actual, key=len, reverse=True):
            for form in (f'"{recorded}"', f"resourceVersion={recorded}", f"continue={recorded}"):
                text = text.replace(form, form.replace(recorded, self.actual[recorded]))
        return text

    def difference(self, recorded: Any, actual: Any, at: str = "") -> list[str]:
        """What the stand-in adds or changes. It may leave out defaults that no test reads."""
        if at.endswith(("resourceVersion", "continue", "uid")) and isinstance(recorded, str):
            known = self.actual.setdefault(recorded, actual)
            return [] if known == actual else [f"{at}: {actual} is not {known}"]
        if at.endswith(("Timestamp", ".time", ".name")) and isinstance(recorded, str):
            return [] if isinstance(actual, str) else [f"{at}: {actual!r}"]
        if at.endswith("message") and isinstance(recorded, str):
            recorded, actual = (_VARIES.sub("#", text) for text in (recorded, actual))
        if isinstance(recorded, dict) and isinstance(actual, dict):
            return [
                found
                for key, value in actual.items()
                for found in (
                    self.difference(recorded[key], value, f"{at}.{key}")
                    if key in recorded
                    else [f"{at}.{key}: not recorded"]
                )
            ]
        if at.endswith("managedFields"):
            pairs = zip(_applied(recorded), _applied(actual), strict=False)
            found = [found for pair in pairs for found in self.difference(*pair, at + "[]")]
            missing = len(_applied(recorded)) - len(_applied(actual))
            return found + ([f"{at}: {missing} missing"] if missing else [])
        if isinstance(recorded, list) and isinstance(actual, list):
            if len(recorded) != len(actual):
                return [f"{at}: {len(actual)} instead of {len(recorded)}"]
            both = zip(recorded, actual, strict=True)
            return [found for pair in both for found in self.difference(*pair, f"{at}[]")]
        return [] if recorded == actual else [f"{at}: {actual!r} instead of {recorded!r}"]


def _applied(entries: Any) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["operation"] == "Apply"]


def node(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(Exchange.read(recording("03")).body)
    made["metadata"]["name"] = name
    made["metadata"]["labels"]["kubernetes.io/hostname"] = name
    return made


def pod(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(Exchange.read(recording("39")).body)
    made["metadata"] = {"name": name, "namespace": "default"}
    return made


def recording(number: str) -> Path:
    return next(path for path in RECORDINGS if path.name.startswith(number))


def more_nodes(server: ApiServer, _: Replay) -> None:
    for name in ("node-a2", "node-a3", "node.with.dots-4", "node-a5"):
        server.put("nodes", node(name))


def a_node_changes_and_one_comes_and_goes(server: ApiServer, _: Replay) -> None:
    server.put("nodes", named("node-a1", labels={"joulie.io/power-profile": "eco"}))
    server.put("nodes", {**named("node-a1"), "spec": {"unschedulable": True}})
    kind = server.kind("nodes")
    server.objects.create(kind, "", node("node-a6"))
    server.delete("nodes", "node-a6")


def named(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}}


def a_pod_lives(server: ApiServer, _: Replay) -> None:
    server.objects.bind(
        "default",
        "p1",
        {
            "metadata": {"annotations": {"joulie.io/gpus": "GPU-1,GPU-2"}},
            "target": {"kind": "Node", "name": "node-a1"},
        },
    )
    server.put("pods", {**named("p1"), "status": {"phase": "Running"}}, "default")
    server.put("pods", {**named("p1"), "status": {"phase": "Succeeded"}}, "default")
    server.put("pods", named("p1", deletionTimestamp="now", generation=2), "default")
    server.delete("pods", "p1", "default")


def a_pod_ends(server: ApiServer, replay: Replay) -> None:
    replay.actual["234"] = server.put("pods", pod("p2"), "default")["metadata"]["resourceVersion"]
    server.objects.bind("default", "p2", {"target": {"kind": "Node", "name": "node-a1"}})
    server.put("pods", {**named("p2"), "status": {"phase": "Succeeded"}}, "default")


def another_writer_writes(server: ApiServer, _: Replay) -> None:
    server.put("nodetwins", named("node-a1", annotations={"by": "somebody"}))


def nothing(_: ApiServer, __: Replay) -> None:
    pass


# Changes on the real server between the recorded requests.
MEANWHILE: dict[str, Callable[[ApiServer, Replay], None]] = {
    "05": more_nodes,
    "09": a_node_changes_and_one_comes_and_goes,
    "26": another_writer_writes,
    "40": a_pod_lives,
    "41": a_pod_ends,
}


async def replayed(session: aiohttp.ClientSession, exchange: Exchange, replay: Replay) -> Exchange:
    url = replay.translated(exchange.url).replace("timeoutSeconds=", "timeoutSeconds=0.")
    headers = {
        name: value if name != "Authorization" else _authorization(value)
        for name, value in exchange.headers.items()
    }
    body = replay.translated(exchange.body)
    async with session.request(exchange.method, url, headers=headers, data=body) as response:
        text = (await response.read()).decode()
    return exchange._replace(status=response.status, reply=text.strip())


def _authorization(value: str) -> str:
    return f"Bearer {TOKENS[value.removeprefix('Bearer ')]}"


def compared(replay: Replay, recorded: Exchange, actual: Exchange) -> list[str]:
    if recorded.status != actual.status:
        return [f"status {actual.status} instead of {recorded.status}: {actual.reply[:200]}"]
    if not recorded.reply.startswith("{") and not recorded.is_watch:
        return [] if recorded.reply == actual.reply else [f"{actual.reply!r}"]
    if not recorded.is_watch or recorded.status != 200:
        return replay.difference(json.loads(recorded.reply), json.loads(actual.reply))
    return replay.difference(_events(recorded.reply), _events(actual.reply))


def _events(text: str) -> list[dict[str, Any]]:
    """Without intermediate bookmarks, which come at any time; the last one counts."""
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    last = len(events) - 1
    return [e for number, e in enumerate(events) if e["type"] != "BOOKMARK" or number == last]


async def test_every_recorded_request_is_answered_as_it_was() -> None:
    differences: dict[str, list[str]] = {}
    replay = Replay()
    async with (
        ApiServer().listening() as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        for path in RECORDINGS:
            number, recorded = path.name[:2], Exchange.read(path)
            MEANWHILE.get(number, nothing)(server, replay)
            server.users["nobody"] = ("nobody", set())
            if number == "32":
                del server.users["nobody"]
            actual = await replayed(session, recorded, replay)
            if found := compared(replay, recorded, actual):
                differences[path.stem] = found

    assert differences == {}


# --- behaviour without a recording ------------------------------------------------------------

NODES = "/api/v1/nodes"


@contextlib.asynccontextmanager
async def talking(
    server: ApiServer, token: str = ADMIN
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    headers = {"Authorization": f"Bearer {token}"}
    base = f"http://127.0.0.1:{server.port}"
    async with server.listening(), aiohttp.ClientSession(base, headers=headers) as session:
        yield session


async def test_a_page_of_a_compacted_version_is_gone() -> None:
    server = ApiServer()
    for name in ("n1", "n2"):
        server.put("nodes", node(name))
    async with talking(server) as session:
        first = await (await session.get(NODES, params={"limit": "1"})).json()
        server.put("nodes", node("n3"))
        server.compact()
        more = {"limit": "1", "continue": first["metadata"]["continue"]}
        answer = await session.get(NODES, params=more)

    assert answer.status == 410


INITIAL = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "timeoutSeconds": "0.2",
}


async def test_initial_events_end_with_an_annotated_bookmark() -> None:
    server = ApiServer()
    server.put("nodes", node("n1"))
    async with talking(server) as session:
        lines = (await (await session.get(NODES, params=INITIAL)).text()).splitlines()

    added, bookmark = (json.loads(line) for line in lines[:2])
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "n1")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_server_without_initial_events_refuses_them_like_the_real_one() -> None:
    server = ApiServer()
    server.initial_events = "refused"
    async with talking(server) as session:
        answer = await session.get(NODES, params=INITIAL)
        body = await answer.json()

    assert (answer.status, body["reason"], body["message"]) == (
        422,
        "Invalid",
        'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents '
        "is forbidden for watch unless the WatchList feature gate is enabled",
    )


@pytest.mark.parametrize(
    "left_out", ["sendInitialEvents", "resourceVersionMatch"], ids=lambda name: f"without {name}"
)
async def test_initial_events_require_both_parameters(left_out: str) -> None:
    asked = {name: value for name, value in INITIAL.items() if name != left_out}
    async with talking(ApiServer()) as session:
        answer = await session.get(NODES, params=asked)
        body = await answer.json()

    assert (answer.status, body["details"]["causes"][0]["field"]) == (422, "resourceVersionMatch")


@pytest.mark.parametrize(("rights", "status"), [({"patch"}, 403), ({"patch", "create"}, 201)])
async def test_applying_a_missing_object_requires_the_right_to_create_it(
    rights: set[str], status: int
) -> None:
    server = ApiServer()
    server.users["me"] = ("me", {("", "nodes", verb) for verb in rights})
    body = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with talking(server, "me") as session:
        answer = await session.patch(
            f"{NODES}/n1", params={"fieldManager": "m"}, data=body, headers=headers
        )

    assert answer.status == status


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("n1.example", "/api/v1/nodes/n1.example/status"),
        ("../pods", "/api/v1/nodes/..%2Fpods/status"),
        ("n1?force=true", "/api/v1/nodes/n1%3Fforce%3Dtrue/status"),
    ],
)
def test_a_name_is_one_segment_of_the_path_of_its_object(name: str, path: str) -> None:
    assert object_path("/api/v1/nodes", name, "status") == path


def test_a_name_that_changes_the_path_is_refused() -> None:
    with pytest.raises(BadName):
        object_path("/api/v1/nodes", "..")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.96.0.1,.svc"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example"}, "http://proxy:3128"),
    ],
)
def test_the_proxy_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str | None
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert proxy_for("https://10.96.0.1:443") == expected
