"""POST /v1/place: a manifest in, what would happen out; nothing is written."""

import asyncio
import contextlib
import sqlite3

import httpx2
import pytest

from console_kit import ConsoleHarness
from joulie.client import ConsoleClient, ConsoleRefused, queries
from joulie_answers.schema.requests import MOST_BYTES

pytestmark = pytest.mark.anyio
POD = """
kind: Pod
metadata: {name: new, namespace: team}
spec:
  containers: [{name: c, resources: {requests: {cpu: 4}}}]
"""
YAML = {"Content-Type": "application/yaml"}


def rows_of(harness: ConsoleHarness) -> list[str]:
    """The whole database as text, without the lease of the projector."""
    with contextlib.closing(sqlite3.connect(harness.database)) as db:
        return [
            line for line in db.iterdump() if "INSERT INTO" in line and '"checkpoint"' not in line
        ]


async def test_a_manifest_is_answered_and_nothing_is_written(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        entries = (await console.decisions()).entries
        before = rows_of(scenario)
        found = await console.place(queries.Place(manifest=POD))
        await asyncio.sleep(0.5)

        assert (await console.decisions()).entries == entries
    assert rows_of(scenario) == before
    assert (found.pods, found.placed) == (1, 1)
    assert found.groups[0].nodes[0].node in ("n1", "n2", "n3")
    assert found.settings


async def test_the_body_is_the_manifest_and_the_namespace_a_parameter(
    browser: httpx2.AsyncClient,
) -> None:
    content = POD.replace(", namespace: team", "")
    path = "/v1/place?namespace=team-b"
    found = await browser.post(path, content=content, headers=YAML)

    assert found.status_code == 200
    assert found.json()["groups"][0]["what"] == "Pod team-b/new"


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "why"),
    [
        ("/v1/place", POD, "text/plain", 415, "Content-Type application/yaml"),
        ("/v1/place", "a: [", "application/yaml", 400, "neither YAML nor JSON"),
        ("/v1/place", "", "application/yaml", 400, "manifest"),
        ("/v1/place", "kind: Service", "application/yaml", 400, "makes pods"),
        ("/v1/place", b"\xff\xfe", "application/yaml", 400, "UTF-8"),
        ("/v1/place", "a" * (MOST_BYTES + 1), "application/yaml", 413, "longer than 1 MiB"),
        ("/v1/place?manifest=a", POD, "application/yaml", 400, "is the body of the request"),
        ("/v1/place?what=a", POD, "application/yaml", 400, "what"),
        ("/v1/nodes", POD, "application/yaml", 405, "read-only"),
    ],
)
async def test_what_is_no_question_is_refused_with_the_reason(
    browser: httpx2.AsyncClient,
    path: str,
    body: str | bytes,
    kind: str,
    status: int,
    why: str,
) -> None:
    found = await browser.post(path, content=body, headers={"Content-Type": kind})

    assert found.status_code == status, found.text
    assert why in found.json()["detail"]


async def test_an_answer_to_a_body_has_no_tag_of_its_path(browser: httpx2.AsyncClient) -> None:
    found = await browser.post("/v1/place", content=POD, headers={**YAML, "If-None-Match": "*"})

    assert found.status_code == 200
    assert "etag" not in found.headers


@pytest.mark.parametrize("kib", [31, 33, 200, 1000])
async def test_a_body_of_any_size_below_the_limit_is_read(
    browser: httpx2.AsyncClient, kib: int
) -> None:
    comment = f"# {'a' * 1021}\n" * kib
    found = await browser.post("/v1/place", content=f"{comment}{POD}", headers=YAML)

    assert found.status_code == 200, found.text


async def test_a_get_of_it_is_refused(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/v1/place")).status_code == 405


async def test_a_wrong_manifest_is_an_error_of_the_client(scenario: ConsoleHarness) -> None:
    async with ConsoleClient(scenario.url) as console:
        with pytest.raises(ConsoleRefused, match=r"document 1, Deployment default/a: spec is miss"):
            await console.place(queries.Place(manifest="kind: Deployment\nmetadata: {name: a}"))
