"""What watchers have seen and not told yet: told in the order in which it was seen, many at once.

Whoever acts goes on meanwhile, as kube-scheduler does not wait for those who watch what it does.
"""

import asyncio
from collections.abc import Iterable

from joulie_bus.errors import BusError
from joulie_bus.events import AnyEvent
from joulie_bus.streams.log import MAX_BATCH, Log
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.records import Message
from joulie_bus.streams.refusals import Refusals

RETRY_S = 1.0
MOST = 2 * MAX_BATCH  # untold; then whoever sees more waits, so that memory stays flat


class Outbox:
    def __init__(self, bus: Log, producer: Producer) -> None:
        self._bus = bus
        self._producer = producer
        self._refused = Refusals("observations", "kept and published later; the cluster waits")
        self._untold: list[Message] = []
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._turn = asyncio.Lock()

    async def put(self, events: Iterable[AnyEvent]) -> None:
        """Returns once there is room for more."""
        self._add(events)
        await self._room.wait()

    async def tell(self, events: Iterable[AnyEvent]) -> None:
        """Returns once they are stored, and all that was put before."""
        self._add(events)
        await self._empty()

    async def tell_for_ever(self) -> None:
        while True:
            await self._news.wait()
            await self._empty()

    def _add(self, events: Iterable[AnyEvent]) -> None:
        self._untold += [self._producer.stamp(event) for event in events]
        self._look()

    async def _empty(self) -> None:
        """While some are stored, the next ones gather."""
        async with self._turn:  # what one is telling, another would take away a second time
            while self._untold:
                some = self._untold[:MAX_BATCH]
                await self._published(some)
                del self._untold[: len(some)]
                self._look()

    async def _published(self, some: list[Message]) -> None:
        """Until the broker takes them: a simulated cluster waits meanwhile, and loses nothing."""
        while True:
            try:
                await self._bus.publish(some)
            except BusError as error:
                self._refused.saw(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._refused.ended()
                return

    def _look(self) -> None:
        for event, is_so in ((self._news, self._untold), (self._room, len(self._untold) <= MOST)):
            if is_so:
                event.set()
            else:
                event.clear()
