"""Lists and watches one kind of object, and lists again when the server requires it."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import groupby
from typing import Generic, TypeVar

import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BusError, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.kube import api_client
from joulie_operator.kube.api_client import (
    GONE,
    NOT_FOUND,
    ApiServer,
    ApiUnreachable,
    Event,
    InitialListStalled,
    Query,
    WatchEmpty,
)
from joulie_operator.observe.cluster_visibility import WatchStatus
from joulie_operator.observe.fact_messages import report_left_out
from joulie_operator.observe.fact_publisher import Sink

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
SHORT_WATCH_S = 1.0  # one that ends earlier without an event counts as failed
NOT_INSTALLED_PAUSE_S = 30.0  # the CRD may be installed later
# Errors that a list in pages would meet, too. Others mean: no support for initial events.
_REFUSED_AS_PAGES_TOO = frozenset({401, 403, NOT_FOUND, GONE, api_client.TOO_MANY, 503})
K = TypeVar("K")
Watch = AsyncGenerator[list[Event], None]
log = get_logger("watch")


def decoder_of(shape: type[K]) -> Callable[[msgspec.Raw], K]:
    """The decoder of a kind; objects that it refuses are left out and logged."""
    return msgspec.json.Decoder(shape).decode


class Watcher(Generic[K]):
    """Follows one kind of object and passes its objects to a sink.

    Existing objects come as the initial events of a watch, which spares the server complete lists.
    From servers without support for that they come in pages, before the watch.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        read: Callable[[msgspec.Raw], K],
        sink: Sink[K],
        query: Query | None = None,
        *,
        watch_status: WatchStatus | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self.kind = path.rpartition("/")[2]
        self._decode = read
        self._sink = sink
        self._query = query
        self._version = ""
        self._in_pages = False  # the server does not send initial events
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self.watch_status = watch_status or WatchStatus(self.kind)

    async def run(self) -> None:
        """Runs until cancelled. Retries with exponential backoff."""
        while True:
            try:
                await self._list_and_watch()
            except KubernetesRefused as error:
                if error.code == GONE:
                    self._version = ""  # the server has compacted this version: list again
                await self._wait(error)
            except BusError as error:
                self._version = ""  # objects whose facts were not published are listed again
                await self._wait(error)
            except (*ApiUnreachable, *UNDECODABLE) as error:
                await self._wait(error)

    async def _list_and_watch(self) -> None:
        """Lists if needed, then watches until the server ends the watch.

        A server ends a watch at its time limit, or earlier if this operator reads too slowly. The
        next one resumes at once, unless this one was short and brought nothing.
        """
        is_empty, began = bool(self._version), time.monotonic()
        if not self._version:
            self.watch_status.close()
            if self._in_pages:
                await self._list()
        watch = self._api.watch(self._path, self._version, self._query)
        async with contextlib.aclosing(watch):
            if not self._version:
                if not await self._receive_list(watch):
                    return
                self.watch_status.open()
            async for events in watch:
                self.watch_status.open()
                await self._follow(events)
                is_empty = is_empty and not events
        if is_empty and time.monotonic() - began < SHORT_WATCH_S:
            raise WatchEmpty("the server ended the watch at once")

    async def _list(self) -> None:
        count, version, began = 0, "", time.monotonic()
        self._sink.begin_list()
        async for page in self._api.pages(self._path, self._query):
            await self._sink.add_listed(self._read(page.items))
            count, version = count + len(page.items), page.version
        await self._end_list(version, count, began)

    async def _receive_list(self, watch: Watch) -> bool:
        """Whether the initial events were complete; if not, lists are read in pages from now on."""
        why = "the watch ended before the initial events were complete"
        try:
            if await self._receive_initial_events(watch):
                return True
        except KubernetesRefused as error:
            if error.code in _REFUSED_AS_PAGES_TOO:
                raise
            why = str(error)
        except InitialListStalled as error:
            why = str(error)
        self._in_pages = True
        log.info("listed_in_pages", path=self._path, why=why)
        return False

    async def _receive_initial_events(self, watch: Watch) -> bool:
        """Reads the initial events, in batches of a page: facts are published in batches."""
        count, began, received = 0, time.monotonic(), list[Event]()
        self._sink.begin_list()
        async for events in watch:
            received += events
            end = next((at for at, event in enumerate(received) if event.type == "BOOKMARK"), None)
            if end is not None and not received[end].ends_list:
                return False  # a server that does not mark the end of the list
            if end is None and len(received) < api_client.PAGE:
                continue
            await self._apply_initial_events(received[:end])
            count += len(received[:end])
            if end is not None:
                await self._end_list(received[end].version, count, began)
                await self._follow(received[end:])
                return True
            received = []
        return False

    async def _apply_initial_events(self, events: Sequence[Event]) -> None:
        """Objects change while they are listed: a deleted one may have been created again."""
        for is_gone, run in groupby(events, lambda event: event.type == "DELETED"):
            objects = self._read(event.object for event in run)
            if is_gone:
                await self._sink.apply_events([("DELETED", obj) for obj in objects])
            else:
                await self._sink.add_listed(objects)

    async def _end_list(self, version: str, count: int, began: float) -> None:
        await self._sink.end_list()
        self._version = version
        self.watch_status.listed.set()
        how = "pages" if self._in_pages else "events"
        metrics.WATCH_LISTS.labels(kind=self.kind, how=how).inc()
        took_s = round(time.monotonic() - began, 2)
        log.info("listed", path=self._path, how=how, objects=count, took_s=took_s)

    async def _follow(self, events: Sequence[Event]) -> None:
        if not events:
            return
        changes = [
            (event.type, obj)
            for event in events
            if event.type != "BOOKMARK"
            for obj in self._read([event.object])
        ]
        if changes:
            await self._sink.apply_events(changes)
        self._version = events[-1].version
        self._backoff.succeeded()  # the watch works again

    def _read(self, items: Iterable[msgspec.Raw]) -> list[K]:
        """Decodes objects; one that cannot be decoded does not block the others."""
        objects = []
        for item in items:
            try:
                objects.append(self._decode(item))
            except UNDECODABLE as error:
                report_left_out(self.kind, self._path, str(error))
        return objects

    async def _wait(self, error: Exception) -> None:
        self.watch_status.close()
        pause_s = self._backoff.failed()
        if isinstance(error, KubernetesRefused):
            pause_s = max(pause_s, error.retry_after_s)
            if error.code == NOT_FOUND:
                pause_s = NOT_INSTALLED_PAUSE_S
        pause_s *= random.uniform(0.5, 1)  # spreads reconnects
        metrics.WATCH_FAILURES.labels(kind=self.kind).inc()
        log.warning("watch_failed", path=self._path, error=str(error), retry_in_s=round(pause_s, 1))
        await asyncio.sleep(pause_s)
