"""The client's calls of the API, against a whole console."""

import asyncio
import inspect
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from authority import Authority
from console_kit import ConsoleHarness
from http_server import endless, serving
from joulie.client import (
    ConsoleClient,
    ConsoleNotReached,
    ConsoleRefused,
    JoulieError,
    answers,
    connection,
    queries,
)
from joulie_answers.pages import all_pages
from joulie_answers.schema import routes
from joulie_answers.schema.routes import Route

pytestmark = pytest.mark.anyio
ROUTES = {each.name: each for each in vars(routes).values() if isinstance(each, Route)}
POD = "kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c}]}"
ONE = {
    **{"node": "n1", "pod": "team/runs", "decision": 2, "plan": "p8"},
    "place": queries.Place(manifest=POD),
}
TOKEN = "a token of sixteen or more"
REACH = answers.Reach(
    position=1, at_ms=1, age_ms=1, behind_ms=1, first=1, first_at_ms=1, last=1, last_at_ms=1,
    entries=7,
)  # fmt: skip


async def reach(_: web.Request) -> web.Response:
    return web.Response(body=msgspec.json.encode(REACH), content_type="application/json")


@pytest.mark.parametrize("name", sorted(ROUTES.keys() - {"stream"}))
async def test_every_path_has_a_method_with_a_typed_answer(
    scenario: ConsoleHarness, name: str
) -> None:
    async with ConsoleClient(scenario.url) as console:
        method = getattr(console, name)
        answer = await (method(ONE[name]) if name in ONE else method())

    assert type(answer) is ROUTES[name].answer
    assert inspect.signature(method).return_annotation is ROUTES[name].answer


async def test_a_pod_is_explained_by_its_name(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        found = await console.pod("team/heavy")

    assert found.pod is not None
    assert (found.pod.node, found.pod.workload) == ("n3", "performance")
    assert "n3" in " ".join(found.explanation)


async def test_a_query_selects_and_sorts(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        eco = await console.nodes(queries.Nodes(node_class="eco"))
        sorted_by_watts = await console.nodes(queries.Nodes(sort="measured", order="desc"))

    assert [node.name for node in eco.items] == ["n2"]
    assert [node.measured_w for node in sorted_by_watts.items] == [300, 150, None]


@pytest.mark.parametrize("following", [1, 1000])
async def test_a_list_whose_pages_lead_back_is_refused(following: int) -> None:
    page = answers.HeadList(
        position=1, at_ms=1, age_ms=1, behind_ms=1, items=[], next=following, entries=7, unsigned=0
    )

    async def same(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(page), content_type="application/json")

    async with serving(same) as url, ConsoleClient(url) as console:
        with pytest.raises(ConsoleNotReached, match="list without end"):
            await all_pages(console.heads, queries.Heads())
        with pytest.raises(ConsoleNotReached, match="list without end"):
            [each async for each in console.pages(console.heads, queries.Heads())]


async def test_all_pages_are_one_list(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        one = await console.decisions()
        by_two = console.pages(console.decisions, queries.Decisions(limit=2))
        pages = [page async for page in by_two]
        nodes = [page async for page in console.pages(console.nodes, queries.Nodes(limit=1))]

    assert [each.entry for page in pages for each in page.items] == [e.entry for e in one.items]
    assert [node.name for page in nodes for node in page.items] == ["n1", "n2", "n3"]


async def test_a_refusal_has_the_status_and_the_reason(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        with pytest.raises(ConsoleRefused, match="No node 'n9'") as refused:
            await console.node("n9")
        with pytest.raises(ConsoleRefused, match="Expected `int` <= 1000"):
            await console.nodes(queries.Nodes(limit=100_000))

    assert refused.value.status == 404


async def test_the_token_is_read_for_each_request(tmp_path: Path) -> None:
    seen, file = list[str](), tmp_path / "token"

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return await reach(request)

    async with serving(answer) as url, ConsoleClient(url, token_file=file) as console:
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            await console.reach()
        file.unlink()
        with pytest.raises(ConsoleNotReached, match=r"token: No such file"):
            await console.reach()

    assert seen == ["Bearer first", "Bearer second"]


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    elsewhere, file = list[str](), tmp_path / "token"
    file.write_text(TOKEN)

    async def other(request: web.Request) -> web.Response:
        elsewhere.append(request.path)
        return web.Response()

    async with serving(other) as target:

        async def answer(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"{target}/v1/reach")

        async with serving(answer) as url, ConsoleClient(url, token_file=file) as console:
            with pytest.raises(ConsoleRefused, match="redirects are not followed"):
                await console.reach()

    assert elsewhere == []


async def test_the_certificate_is_checked_with_the_authority_of_the_file(tmp_path: Path) -> None:
    ours, other = (Authority.made(tmp_path, name) for name in ("ours", "other"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*ours.issue(tmp_path, "console"))
    async with serving(reach, tls=tls) as url:
        async with ConsoleClient(url, ca_file=ours.file) as console:
            assert await console.reach() == REACH
        for ca_file in (other.file, ""):
            async with ConsoleClient(url, ca_file=ca_file) as console:
                with pytest.raises(ConsoleNotReached, match="certificate verify failed"):
                    await console.reach()


@pytest.mark.parametrize("text", ["", "no certificate"])
async def test_a_file_without_certificates_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(text)

    with pytest.raises(ConsoleNotReached, match=r"ca.pem holds no certificates"):
        await ConsoleClient("https://127.0.0.1", ca_file=file).__aenter__()


async def test_an_answer_without_an_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LARGEST", 1 << 16)

    async with serving(endless) as url, ConsoleClient(url) as console:
        with pytest.raises(ConsoleNotReached, match="more than 64 KiB"):
            await console.reach()


async def test_something_else_than_a_console_is_reported(scenario: ConsoleHarness) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with serving(answer) as url, ConsoleClient(url) as console:
        with pytest.raises(JoulieError, match="what it answers to /v1/reach"):
            await console.reach()


async def test_a_console_that_does_not_answer_is_given_up() -> None:
    has_ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b" ")
        await has_ended.wait()
        return response

    async with serving(answer) as url, ConsoleClient(url, timeout_s=0.2) as console:
        with pytest.raises(ConsoleNotReached, match="no answer in time"):
            await console.reach()
        has_ended.set()


@pytest.mark.parametrize("url", ["127.0.0.1:9870", "ftp://host", "https://a:b@host", "https://"])
async def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConsoleNotReached) as refused:
        await ConsoleClient(url).__aenter__()

    assert "a:b" not in str(refused.value)


async def test_a_closed_client_says_how_to_open_it() -> None:
    console = ConsoleClient("http://127.0.0.1:9870")

    with pytest.raises(ConsoleNotReached, match="async with ConsoleClient"):
        await console.cluster()


HEAVY = ("numpy", "sqlalchemy", "kubernetes", "nats", "starlette", "uvicorn", "alembic", "pyarrow")


def test_the_import_loads_nothing_that_only_a_replay_or_a_server_needs() -> None:
    code = "import sys, joulie.client; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}

    assert loaded & {*HEAVY} == set()
    assert "aiohttp" not in loaded, "a stream alone needs it"
