"""The API over decisions that no producer of ours makes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import httpx2
import pytest

from bus_kit import ask, node_seen, pending
from console_kit import ConsoleHarness
from joulie_answers.views import decision_text
from odd_decisions import DISAGREEING, WILD, odd_messages

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


async def test_every_query_answers_over_odd_decisions(new_harness: NewHarness) -> None:
    messages = odd_messages(DISAGREEING | WILD)
    async with (
        new_harness() as harness,
        httpx2.AsyncClient(base_url=harness.url) as browser,
    ):
        await harness.publish(node_seen("n1"))
        await harness.publish_messages(messages)
        listed = (await browser.get("/v1/decisions")).json()["items"]
        pod = next(item for item in listed if item["pod_uid"])["pod_uid"]
        paths = [
            "/v1/decisions",
            "/v1/cluster",
            "/v1/pending",
            f"/v1/pods/{pod}",
            *(f"/v1/decisions/{item['entry']}" for item in listed),
            *(f"/v1/decisions/{item['entry']}?terms=all" for item in listed),
        ]
        answers = {path: (await browser.get(path)).status_code for path in paths}

    assert {status for status in answers.values() if status >= 500} == set(), answers
    verbs = [item["verb"] for item in listed]
    assert verbs.count("unreadable") == len(DISAGREEING)
    assert not any("could not be described" in item["text"] for item in listed)


async def test_a_description_that_fails_hides_its_line_and_ends_no_page_and_no_stream(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("activation")

    monkeypatch.setattr(decision_text, "loss_of", fail)
    async with (
        new_harness() as harness,
        httpx2.AsyncClient(base_url=harness.url) as browser,
        httpx2.AsyncClient(base_url=harness.url) as listener,
    ):
        await harness.publish(node_seen("n1"), node_seen("n2"), pending("web"))
        async with listener.stream("GET", "/v1/stream") as stream:
            lines = stream.aiter_lines()
            await harness.decide(ask("web"))
            streamed = [line async for line in taken_until(lines, "could not be described")]
        listed = (await browser.get("/v1/decisions")).json()["items"]
        pod = (await browser.get("/v1/pods/web")).json()
        decision = (await browser.get("/v1/decisions/3")).json()

    assert [item["verb"] for item in listed] == ["unreadable", "filter", "settings"]
    assert "could not be described (KeyError: 'activation')" in listed[0]["text"]
    assert streamed
    assert "could not be described" in pod["explanation"][0]
    assert len(pod["decisions"]) == 2
    assert [each["node"] for each in decision["candidates"]] == ["n1", "n2"]


async def taken_until(lines: AsyncIterator[str], text: str) -> AsyncIterator[str]:
    """Ends with the line that has the text."""
    async with asyncio.timeout(60):
        async for line in lines:
            yield line
            if text in line:
                return
