"""Writes claims to the log by compare-and-set: no other message about a card may come in between.

The view must have folded everything that the stream holds, including the newest message about
claims. Sequence numbers alone do not detect a stream that was restored to an older state and grew
again, and a claim based on such a view could give a card to two pods.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from joulie_bus.errors import BusError, ExpectationFailed, StreamReplaced
from joulie_bus.events import ClaimEvent
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.streams.records import Stored, digest_of
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_projections.view.view import View

AT_ONCE = 16  # claims in flight; those of several cards wait for room at the broker
FOLLOWS_S = 2.0  # for the view to catch up with the log
Decide = Callable[[], Sequence[ClaimEvent]]


class ClaimLog:
    def __init__(self, bus: Log, subjects: Subjects, view: View, replica: str) -> None:
        self._bus = bus
        self._view = view
        self._subjects = subjects
        self._producer = Producer(f"{replica}-claims", subjects, time.time_ns)
        self._refused = Refusals(
            "claims", "no card is given; the pod or the release is tried again"
        )
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def write(self, cards: Iterable[str], decide: Decide) -> Sequence[ClaimEvent]:
        """Appends the events that `decide` returns, once the view has folded all messages about
        these cards.

        Returns what was stored. Raises ExpectationFailed if another writer came first.
        """
        asked = sorted(set(cards))
        try:
            events = await self._written(asked, decide)
        except ExpectationFailed:
            raise
        except BusError as error:
            self._refused.observe(error)
            raise
        self._refused.ended()
        return events

    async def _written(self, asked: Sequence[str], decide: Decide) -> Sequence[ClaimEvent]:
        async with self._turns:
            newest = await asyncio.gather(*(self._newest(card) for card in asked))
            await self._has(max((stored.sequence for stored in newest), default=0))
            await self._require_same_history()
            events = decide()  # no await between this call and the stamps
            if not events:
                return ()
            messages = [self._producer.stamp(event, corr=event.pod_uid) for event in events]
            at = {card: stored.sequence for card, stored in zip(asked, newest, strict=True)}
            expected = {
                message.subject: at[event.card]
                for message, event in zip(messages, events, strict=True)
            }
            await self._bus.append(Stream.CLAIM, messages, expected)
        return events

    async def _newest(self, card: str) -> Stored:
        subject = self._subjects.claim(card)
        return await self._bus.last(Stream.CLAIM, subject) or Stored(0, b"")

    async def _has(self, sequence: int) -> None:
        """Raises ViewBehind if the view does not catch up in time."""
        end = time.monotonic() + FOLLOWS_S
        while self._view.cluster_state.claims_read < sequence:
            await self._view.wait_for(self._view.position + 1, max(0.0, end - time.monotonic()))

    async def _require_same_history(self) -> None:
        """Raises StreamReplaced if the view was folded from other claims than the stream holds."""
        read, digest = self._view.cluster_state.newest_claim
        if not digest:
            return  # no claim was folded yet by code that keeps the digest
        found = await self._bus.message(Stream.CLAIM, read)
        if found is None:
            await self._require_trimmed(read)
        elif digest_of(found) != digest:
            raise StreamReplaced.at(Stream.CLAIM, read)

    async def _require_trimmed(self, read: int) -> None:
        """The compared message may be missing only if all before it are."""
        state = await self._bus.state(Stream.CLAIM)
        if state.last < read:
            raise StreamReplaced(Stream.CLAIM, f"sequence {read}", f"sequence {state.last}")
        if state.first <= read:
            raise StreamReplaced.at(Stream.CLAIM, read)
