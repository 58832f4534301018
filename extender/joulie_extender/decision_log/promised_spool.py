"""Spools the messages of this life of a replica, each with the hash of the one before it."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from joulie_bus.events import DecisionEntry, Promise, PromiseKey
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.kept_hashes import Kept, kept_of
from joulie_extender.decision_log.promises import Promises
from joulie_extender.decision_log.spool import Spool
from joulie_projections.chain.promise import Promised

MOST_REMEMBERED = 10_000  # hashes of messages that wait; those of older ones are computed again


class PromisedSpool:
    """`unsigned` is what an earlier life published after its last promise."""

    def __init__(
        self,
        producer: Producer,
        spool: Spool,
        unsigned: Sequence[Promised] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._clock = clock
        self._producer = producer
        self._spool = spool
        self._promises = Promises(unsigned)
        self._hashes: deque[Kept] = deque(maxlen=MOST_REMEMBERED)

    @property
    def is_unsigned(self) -> bool:
        return self._promises.is_unsigned

    def append(self, entry: DecisionEntry) -> Message:
        """After the key at first, and after a promise when it is time. Raises OSError if the disk
        is full."""
        now = self._clock()
        if (due := self._promises.due(now)) is not None:
            self._write(due, now)
        return self._write(entry, now)

    def sign(self, *, at_once: bool = False) -> None:
        """Appends a promise if it is time for one. Raises OSError if the disk is full."""
        now = self._clock()
        if self.is_unsigned and (due := self._promises.due(now, at_once=at_once)) is not None:
            self._write(due, now)

    def kept(self, messages: Sequence[Message]) -> list[Kept]:
        """The hashes of messages of the spool, oldest first."""
        return [self._kept(message) for message in messages]

    def _kept(self, message: Message) -> Kept:
        if self._hashes and self._hashes[0].id == message.id:
            return self._hashes.popleft()
        return kept_of(message)  # of an earlier life

    def _write(self, entry: DecisionEntry, now: int) -> Message:
        message = self._producer.stamp(entry, corr=entry.key, prev=self._promises.prev)
        self._spool.append(message)
        promised = self._promises.follow(message, entry, now)
        signing = message.data if isinstance(entry, Promise | PromiseKey) else b""
        self._hashes.append(Kept(promised.id, promised.hash, signing))
        return message
