"""The stand-in API server says what a real one once said, request by request."""

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from joulie_bus.errors import BadName
from joulie_operator.kube.api_client import object_path
from kube_api import ADMIN, ApiServer

pytestmark = pytest.mark.anyio
RECORDINGS = sorted((Path(__file__).parents[2] / "data/kube-api").glob("*.http"))
TOKENS = {
    "<token of an administrator>": ADMIN,
    # One file has lost the token that it was recorded with: it was one that nobody had issued.
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
    """Versions, uids and tokens differ from server to server: one side is told as the other."""

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}  # recorded -> ours

    def translated(self, text: str) -> str:
        for recorded in sorted(self.ours, key=len, reverse=True):
            for form in (f'"{recorded}"', f"resourceVersion={recorded}", f"continue={recorded}"):
                text = text.replace(form, form.replace(recorded, self.ours[recorded]))
        return text

    def difference(self, recorded: Any, ours: Any, at: str = "") -> list[str]:
        """What we say and they did not. We may say less: defaults that nobody here reads."""
        if at.endswith(("resourceVersion", "continue", "uid")) and isinstance(recorded, str):
            known = self.ours.setdefault(recorded, ours)
            return [] if known == ours else [f"{at}: {ours} is not {known}"]
        if at.endswith(("Timestamp", ".time", ".name")) and isinstance(recorded, str):
            return [] if isinstance(ours, str) else [f"{at}: {ours!r}"]
        if at.endswith("message") and isinstance(recorded, str):
            recorded, ours = (_VARIES.sub("#", text) for text in (recorded, ours))
        if isinstance(recorded, dict) and isinstance(ours, dict):
            return [
                told
                for key, value in ours.items()
                for told in (
                    self.difference(recorded[key], value, f"{at}.{key}")
                    if key in recorded
                    else [f"{at}.{key}: they do not say it"]
                )
            ]
        if at.endswith("managedFields"):
            pairs = zip(_applied(recorded), _applied(ours), strict=False)
            found = [told for pair in pairs for told in self.difference(*pair, at + "[]")]
            missing = len(_applied(recorded)) - len(_applied(ours))
            return found + ([f"{at}: {missing} missing"] if missing else [])
        if isinstance(recorded, list) and isinstance(ours, list):
            if len(recorded) != len(ours):
                return [f"{at}: {len(ours)} instead of {len(recorded)}"]
            both = zip(recorded, ours, strict=True)
            return [told for pair in both for told in self.difference(*pair, f"{at}[]")]
        return [] if recorded == ours else [f"{at}: {ours!r} instead of {recorded!r}"]


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
    replay.ours["234"] = server.put("pods", pod("p2"), "default")["metadata"]["resourceVersion"]
    server.objects.bind("default", "p2", {"target": {"kind": "Node", "name": "node-a1"}})
    server.put("pods", {**named("p2"), "status": {"phase": "Succeeded"}}, "default")


def somebody_else_writes(server: ApiServer, _: Replay) -> None:
    server.put("nodetwins", named("node-a1", annotations={"by": "somebody"}))


def nothing(_: ApiServer, __: Replay) -> None:
    pass


# What happened on the real server between what was recorded.
MEANWHILE: dict[str, Callable[[ApiServer, Replay], None]] = {
    "05": more_nodes,
    "09": a_node_changes_and_one_comes_and_goes,
    "26": somebody_else_writes,
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


def compared(replay: Replay, recorded: Exchange, ours: Exchange) -> list[str]:
    if recorded.status != ours.status:
        return [f"status {ours.status} instead of {recorded.status}: {ours.reply[:200]}"]
    if not recorded.reply.startswith("{") and not recorded.is_watch:
        return [] if recorded.reply == ours.reply else [f"{ours.reply!r}"]
    if not recorded.is_watch or recorded.status != 200:
        return replay.difference(json.loads(recorded.reply), json.loads(ours.reply))
    return replay.difference(_events(recorded.reply), _events(ours.reply))


def _events(text: str) -> list[dict[str, Any]]:
    """Bookmarks in between come when the server likes; the last one counts."""
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
            ours = await replayed(session, recorded, replay)
            if found := compared(replay, recorded, ours):
                differences[path.stem] = found

    assert differences == {}


# --- what no recording shows ------------------------------------------------------------------

NODES = "/api/v1/nodes"


@contextlib.asynccontextmanager
async def talking(
    server: ApiServer, token: str = ADMIN
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    headers = {"Authorization": f"Bearer {token}"}
    base = f"http://127.0.0.1:{server.port}"
    async with server.listening(), aiohttp.ClientSession(base, headers=headers) as session:
        yield session


async def test_a_page_of_a_past_that_is_forgotten_is_gone() -> None:
    server = ApiServer()
    for name in ("n1", "n2"):
        server.put("nodes", node(name))
    async with talking(server) as session:
        first = await (await session.get(NODES, params={"limit": "1"})).json()
        server.put("nodes", node("n3"))
        server.forget_the_past()
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


async def test_initial_events_end_with_a_bookmark_that_says_so() -> None:
    server = ApiServer()
    server.put("nodes", node("n1"))
    async with talking(server) as session:
        lines = (await (await session.get(NODES, params=INITIAL)).text()).splitlines()

    added, bookmark = (json.loads(line) for line in lines[:2])
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "n1")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_server_without_initial_events_says_so_in_the_words_of_the_real_one() -> None:
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
async def test_initial_events_are_asked_for_with_both_parameters(report_left_out: str) -> None:
    asked = {name: value for name, value in INITIAL.items() if name != report_left_out}
    async with talking(ApiServer()) as session:
        answer = await session.get(NODES, params=asked)
        body = await answer.json()

    assert (answer.status, body["details"]["causes"][0]["field"]) == (422, "resourceVersionMatch")


@pytest.mark.parametrize(("rights", "status"), [({"patch"}, 403), ({"patch", "create"}, 201)])
async def test_who_applies_what_is_not_there_must_be_allowed_to_create_it(
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


def test_a_name_that_means_another_path_is_refused() -> None:
    with pytest.raises(BadName):
        object_path("/api/v1/nodes", "..")
