"""Reads the stream of decisions, and exports its spans.

The stream is the queue: while the collector is away, one request waits here, and the rest in the
stream. A request that is refused for ten minutes is given up, since it may be the reason itself. A
console that starts sends what is decided from then on.
"""

import asyncio
import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import StreamGap, StreamReplaced
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_console.views.pod_traces import PodTraces, Span

MOST_AT_ONCE = 512  # spans in one request
GATHER_S = 1.0  # between two requests
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
GIVEN_UP_S = 600.0
SERVICE = "joulie"
log = get_logger("traces")


class TraceSender:
    def __init__(self, bus: Log, cluster: str) -> None:
        self._bus = bus
        self._traces = PodTraces()
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before these.
        named = {"service.name": SERVICE, "k8s.cluster.name": cluster}
        self._resource = Resource(named).merge(Resource.create())
        self._scope = InstrumentationScope("joulie.decisions")
        self._after: int | None = None  # the last message that was sent, or needed no span

    async def send(self) -> None:
        """Runs until it is cancelled."""
        exporter = OTLPSpanExporter()  # reads OTEL_EXPORTER_OTLP_*
        try:
            while True:
                try:
                    await self._follow(exporter)
                except (StreamGap, StreamReplaced) as error:
                    log.warning("traces_lost", why=str(error))
                    self._after = None
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]

    async def _follow(self, exporter: OTLPSpanExporter) -> None:
        if self._after is None:
            self._after = (await self._bus.state(Stream.DEC)).last
        has_records = asyncio.Event()
        async with self._bus.reading(Stream.DEC, self._after, wakeup=has_records) as reader:
            while True:
                await has_records.wait()
                has_records.clear()
                while records := reader.take(MOST_AT_ONCE):
                    await self._export(exporter, records)
                    self._after = records[-1].sequence
                await asyncio.sleep(GATHER_S)

    async def _export(self, exporter: OTLPSpanExporter, records: Sequence[Record]) -> None:
        """Returns when the collector has the spans of these records, or will not get them."""
        spans = [self._readable(each) for one in records for each in self._traces.spans_of(one)]
        backoff, begun = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), time.monotonic()
        while spans:
            if await asyncio.to_thread(exporter.export, spans) is SpanExportResult.SUCCESS:
                metrics.SPANS.labels(result="sent").inc(len(spans))
                return
            if time.monotonic() - begun >= GIVEN_UP_S:
                metrics.SPANS.labels(result="dropped").inc(len(spans))
                log.error("spans_dropped", spans=len(spans))
                return
            pause_s = backoff.failed()
            log.warning("spans_not_sent", spans=len(spans), again_in_s=pause_s)
            await asyncio.sleep(pause_s)

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.id),
            parent=None if span.parent is None else _context(span.trace, span.parent),
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start,
            end_time=span.end,
        )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
