"""The API over decisions that no producer of ours makes."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx2
import pytest

from console_kit import ConsoleHarness
from joulie_bus.testing import node_seen
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
