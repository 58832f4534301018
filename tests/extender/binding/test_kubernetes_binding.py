"""What the extender sends to the API server for a Binding, and which replies it believes."""

import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from aiohttp import web

from joulie_extender.binding.binder import BindRequest, PodLookup
from joulie_extender.binding.kubernetes_binding import KubeBinder

pytestmark = pytest.mark.anyio
ORDER = BindRequest("d", "p", "u1", "n0")
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
BINDING = {"kind": "Binding", "apiVersion": "v1", "target": {"kind": "Node", "name": "n0"}}


class Server:
    """Answers every request alike, and keeps the targets as they came."""

    def __init__(self, status: int, body: bytes) -> None:
        self.targets: list[str] = []
        self._status, self._body = status, body

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.targets.append(request.raw_path)
        return web.Response(status=self._status, body=self._body)


@contextlib.asynccontextmanager
async def binding_at(
    directory: Path, status: int, body: bytes
) -> AsyncGenerator[tuple[KubeBinder, Server], None]:
    server = Server(status, body)
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        async with KubeBinder.of(str(path)) as binder:
            yield binder, server
    finally:
        await runner.cleanup()


async def fate(directory: Path, body: object, status: int = 201) -> str:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with binding_at(directory, status, sent) as (binder, _):
        return (await binder.bind(ORDER)).status


@pytest.mark.parametrize(
    "body",
    [
        SUCCESS,
        {**BINDING, "metadata": {"name": "p", "uid": "u1"}},
        {**BINDING, "metadata": {"name": "p"}},
    ],
    ids=["a status", "the binding", "the binding without a uid"],
)
async def test_bound_is_reported_for_a_reply_to_this_binding_only(
    tmp_path: Path, body: object
) -> None:
    assert await fate(tmp_path, body) == "made"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>a proxy's own page</html>",
        {},
        [],
        None,
        {**SUCCESS, "status": "Failure"},
        {**SUCCESS, "apiVersion": "example.com/v1"},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u1"}},
        {**BINDING, "metadata": {"name": "another", "uid": "u1"}},
        {**BINDING, "metadata": {"name": "p", "uid": "another"}},
        {**BINDING, "metadata": {"name": "p"}, "target": {"name": "n1"}},
    ],
    ids=str,
)
async def test_any_other_reply_leaves_it_open_whether_the_pod_is_bound(
    tmp_path: Path, body: object
) -> None:
    assert await fate(tmp_path, body, 200) == "unclear"


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("p?dryRun=All&x=", "p%3FdryRun=All&x="),
        ("../../secrets/s", "..%2F..%2Fsecrets%2Fs"),
        ("p#x", "p%23x"),
        ("p%2Fx", "p%252Fx"),
    ],
)
async def test_a_name_is_one_segment_of_the_path(tmp_path: Path, name: str, segment: str) -> None:
    """Also if it was never checked: names of claims are read from the log."""
    async with binding_at(tmp_path, 404, b"{}") as (binder, server):
        await binder.bind(ORDER._replace(name=name))
        assert await binder.find(name, "p", "u1") == PodLookup("gone")

    assert server.targets == [
        f"/api/v1/namespaces/d/pods/{segment}/binding",
        f"/api/v1/namespaces/{segment}/pods/p",
    ]


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_that_no_path_can_hold_is_never_asked_for(tmp_path: Path, name: str) -> None:
    async with binding_at(tmp_path, 200, b"{}") as (binder, server):
        assert (await binder.bind(ORDER._replace(name=name))).status == "gone"
        assert await binder.find("d", name, "u1") == PodLookup("gone")

    assert server.targets == []
