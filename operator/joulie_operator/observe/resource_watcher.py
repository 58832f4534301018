"""Follows one kind of object: what is there, what changes, and again when the past is gone."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import groupby
from typing import Generic, TypeVar

import msgspec

from joulie_bus.errors import BusError, KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.kube import api_client
from joulie_operator.kube.api_client import (
    GONE,
    NOT_FOUND,
    ApiServer,
    Event,
    Query,
    Silent,
    Unanswered,
)
from joulie_operator.observe.cluster_visibility import Eye
from joulie_operator.observe.fact_messages import left_out
from joulie_operator.observe.fact_publisher import Sink

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
NOT_INSTALLED_PAUSE_S = 30.0  # a kind that nobody has installed may be installed later
# What pages would be refused for, too. Any other refusal means: not as events.
_NO_HELP = frozenset({401, 403, NOT_FOUND, GONE, api_client.TOO_MANY, 503})
K = TypeVar("K")
Watch = AsyncGenerator[list[Event], None]
log = get_logger("watch")


def reader(shape: type[K]) -> Callable[[msgspec.Raw], K]:
    """For a kind of which an object out of shape is left out, with a log line."""
    return msgspec.json.Decoder(shape).decode


class Watcher(Generic[K]):
    """What is there comes as the first events of the watch, from servers that can do so: they need
    not put together whole lists for us. From others it comes in pages, before the watch.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        read: Callable[[msgspec.Raw], K],
        sink: Sink[K],
        query: Query | None = None,
        *,
        eye: Eye | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._kind = path.rpartition("/")[2]
        self._decode = read
        self._sink = sink
        self._query = query
        self._version = ""
        self._in_pages = False  # this server has to be asked for lists
        self._pause_s = FIRST_PAUSE_S
        self.eye = eye or Eye(self._kind)

    async def run(self) -> None:
        """For ever. An outage is waited out with growing pauses, never hammered."""
        while True:
            try:
                await self._look()
            except KubernetesRefused as error:
                if error.code == GONE:
                    self._version = ""  # what happened since is forgotten there: list again
                await self._wait(error)
            except BusError as error:
                self._version = ""  # what was not told has to be seen again
                await self._wait(error)
            except (*Unanswered, msgspec.DecodeError) as error:
                await self._wait(error)

    async def _look(self) -> None:
        """Until the server ends the watch."""
        if not self._version:
            self.eye.close()
            if self._in_pages:
                await self._list()
        watch = self._api.watch(self._path, self._version, self._query)
        async with contextlib.aclosing(watch):
            if not self._version:
                if not await self._is_shown(watch):
                    return
                self.eye.open()
            async for events in watch:
                self.eye.open()
                await self._follow(events)

    async def _list(self) -> None:
        count, version, began = 0, "", time.monotonic()
        self._sink.begin()
        async for page in self._api.pages(self._path, self._query):
            await self._sink.listed(self._read(page.items))
            count, version = count + len(page.items), page.version
        await self._whole(version, count, began)

    async def _is_shown(self, watch: Watch) -> bool:
        """Whether all that is there came as events; if not, it is listed from now on."""
        why = "its events ended before all was told"
        try:
            if await self._show(watch):
                return True
        except KubernetesRefused as error:
            if error.code in _NO_HELP:
                raise
            why = str(error)
        except Silent as error:
            why = str(error)
        self._in_pages = True
        log.info("listed_in_pages", path=self._path, why=why)
        return False

    async def _show(self, watch: Watch) -> bool:
        """As many at once as a page has: facts go to the log together."""
        count, began, shown = 0, time.monotonic(), list[Event]()
        self._sink.begin()
        async for events in watch:
            shown += events
            end = next((at for at, event in enumerate(shown) if event.type == "BOOKMARK"), None)
            if end is not None and not shown[end].ends_list:
                return False  # it does not say when all was told
            if end is None and len(shown) < api_client.PAGE:
                continue
            await self._listed(shown[:end])
            count += len(shown[:end])
            if end is not None:
                await self._whole(shown[end].version, count, began)
                await self._follow(shown[end:])
                return True
            shown = []
        return False

    async def _listed(self, events: Sequence[Event]) -> None:
        """While it is told, things go on to change; one that went may have come back since."""
        for is_gone, run in groupby(events, lambda event: event.type == "DELETED"):
            things = self._read(event.object for event in run)
            if is_gone:
                await self._sink.happened([("DELETED", thing) for thing in things])
            else:
                await self._sink.listed(things)

    async def _whole(self, version: str, count: int, began: float) -> None:
        await self._sink.whole()
        self._version = version
        self.eye.listed.set()
        how = "pages" if self._in_pages else "events"
        metrics.WATCH_LISTS.labels(kind=self._kind, how=how).inc()
        took_s = round(time.monotonic() - began, 2)
        log.info("listed", path=self._path, how=how, objects=count, took_s=took_s)

    async def _follow(self, events: Sequence[Event]) -> None:
        if not events:
            return
        news = [
            (event.type, thing)
            for event in events
            if event.type != "BOOKMARK"
            for thing in self._read([event.object])
        ]
        if news:
            await self._sink.happened(news)
        self._version = events[-1].version
        self._pause_s = FIRST_PAUSE_S  # it speaks again

    def _read(self, items: Iterable[msgspec.Raw]) -> list[K]:
        """One that has not the shape of its kind keeps nobody else from being seen."""
        things = []
        for item in items:
            try:
                things.append(self._decode(item))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                left_out(self._kind, self._path, str(error))
        return things

    async def _wait(self, error: Exception) -> None:
        self.eye.close()
        pause_s = self._pause_s
        if isinstance(error, KubernetesRefused):
            pause_s = max(pause_s, error.retry_after_s)
            if error.code == NOT_FOUND:
                pause_s = NOT_INSTALLED_PAUSE_S
        pause_s *= random.uniform(0.5, 1)  # operators do not come back together
        metrics.WATCH_FAILURES.labels(kind=self._kind).inc()
        log.warning("watch_failed", path=self._path, error=str(error), again_in_s=round(pause_s, 1))
        await asyncio.sleep(pause_s)
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
