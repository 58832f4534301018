"""Queue of observed events, published in order and in batches.

The scheduler does not wait for the publishing, as kube-scheduler does not wait for its watchers.
"""

import asyncio
from collections.abc import Iterable

from joulie_bus.errors import BusError
from joulie_bus.events import AnyEvent
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.streams.records import Message

RETRY_S = 1.0
AT_ONCE = 1000  # events of one call
MAX_QUEUED = 2 * AT_ONCE  # unpublished events; with more, `put` waits, which bounds memory


class Outbox:
    def __init__(self, bus: Log, producer: Producer) -> None:
        self._bus = bus
        self._producer = producer
        self._refused = Refusals("observations", "kept and published later; the cluster waits")
        self._queue: list[Message] = []
        self._has_events, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self._turn = asyncio.Lock()

    async def put(self, events: Iterable[AnyEvent]) -> None:
        """Queue events; waits while the queue is full."""
        self._add(events)
        await self._has_room.wait()

    async def publish(self, events: Iterable[AnyEvent]) -> None:
        """Queue events and wait until they and all earlier ones are stored."""
        self._add(events)
        await self._publish_queue()

    async def publish_forever(self) -> None:
        while True:
            await self._has_events.wait()
            await self._publish_queue()

    def _add(self, events: Iterable[AnyEvent]) -> None:
        self._queue += [self._producer.stamp(event) for event in events]
        self._update_events()

    async def _publish_queue(self) -> None:
        """Publish the queue in batches; new events queue up meanwhile."""
        async with self._turn:  # two publishers would publish the same events twice
            while self._queue:
                some = self._queue[:AT_ONCE]
                await self._publish_batch(some)
                del self._queue[: len(some)]
                self._update_events()

    async def _publish_batch(self, some: list[Message]) -> None:
        """Retry until the broker stores them: the simulated cluster waits, and loses nothing."""
        while True:
            try:
                await self._bus.publish(some)
            except BusError as error:
                self._refused.observe(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._refused.ended()
                return

    def _update_events(self) -> None:
        for event, is_so in (
            (self._has_events, self._queue),
            (self._has_room, len(self._queue) <= MAX_QUEUED),
        ):
            if is_so:
                event.set()
            else:
                event.clear()
