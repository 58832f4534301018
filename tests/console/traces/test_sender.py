"""A console that sends traces to a real OTLP receiver."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import httpx2
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from structlog.testing import capture_logs

from bus_kit import ask, bound, hardware, node_seen, pending, power, until
from console_kit import ConsoleHarness
from http_server import serving
from joulie_console.traces import sender
from joulie_console.traces.wanted import ENDPOINTS, is_wanted

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATHER_S", "FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(sender, name, 0.05)


class Collector(NamedTuple):
    """What arrived, and with which status it answers."""

    requests: list[ExportTraceServiceRequest]
    statuses: list[int]  # of the next answers; then 200

    async def answer(self, request: web.Request) -> web.Response:
        assert request.path == "/v1/traces"
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(status=status)

    @property
    def spans(self) -> dict[str, Span]:
        found = [each for one in self.requests for each in one.resource_spans]
        return {span.name: span for each in found for span in each.scope_spans[0].spans}

    def has(self, *names: str) -> Callable[[], bool]:
        return lambda: set(names) <= self.spans.keys()


@asynccontextmanager
async def traced(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch, *statuses: int
) -> AsyncGenerator[tuple[ConsoleHarness, Collector], None]:
    collector = Collector([], [*statuses])
    async with serving(collector.answer) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        async with new_harness() as harness:
            await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
            await asyncio.sleep(0.5)  # the sender reads what comes after its start
            yield harness, collector


def values(span: Span) -> dict[str, object]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "")
        for each in span.attributes
    }


async def test_a_placed_pod_is_one_trace(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with traced(new_harness, monkeypatch) as (harness, collector):
        pod = ask("u1")
        await harness.publish(pending("u1"))
        await harness.decide(pod)
        await harness.publish(bound("u1", "n1"))
        await until(collector.has("filter", "prioritize", "schedule pod"))

    spans = collector.spans
    whole = spans["schedule pod"]
    assert {span.trace_id for span in spans.values()} == {whole.trace_id}
    assert spans["filter"].parent_span_id == spans["prioritize"].parent_span_id == whole.span_id
    assert whole.parent_span_id == b""
    assert whole.start_time_unix_nano <= spans["filter"].start_time_unix_nano
    assert whole.end_time_unix_nano >= spans["prioritize"].end_time_unix_nano
    assert values(whole)["k8s.node.name"] == "n1"
    assert values(spans["prioritize"])["joulie.candidates"] == 1
    [resource] = {one.resource_spans[0].resource.SerializeToString() for one in collector.requests}
    assert b"k8s.cluster.name" in resource


async def test_spans_that_a_collector_refuses_are_sent_again(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with traced(new_harness, monkeypatch, 400, 400) as (harness, collector):
        await harness.decide(ask("u1"))
        await until(collector.has("filter", "prioritize"))

    assert collector.statuses == []


async def test_a_request_that_is_refused_for_long_is_given_up(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "GIVEN_UP_S", 0)
    async with traced(new_harness, monkeypatch, 400) as (harness, collector):
        await harness.decide(ask("u1"))
        await until(lambda: not collector.statuses)
        await harness.decide(ask("u2"))
        await until(collector.has("filter"))

    assert {values(each)["k8s.pod.uid"] for each in collector.spans.values()} == {"u2"}


async def test_a_console_without_the_extra_names_it_and_serves(
    new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "joulie_console.traces.sender", None)
    with capture_logs() as lines:
        async with new_harness() as harness, httpx2.AsyncClient() as client:
            answer = await client.get(f"{harness.url}/v1/cluster")

    assert answer.status_code == 200
    [why] = [line["why"] for line in lines if line["event"] == "traces_not_sent"]
    assert "pip install 'joulie[traces]'" in why


@pytest.mark.parametrize("name", ENDPOINTS)
def test_traces_need_the_address_of_a_collector(name: str) -> None:
    assert is_wanted({name: "http://127.0.0.1:4318"})
    assert not is_wanted({name: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"})
    assert not is_wanted({name: ""})
    assert not is_wanted({})
