"""How far the committed state is behind the streams, by round trips to the broker.

The time of the newest fact alone does not answer this: an idle cluster has no facts, and a stream
that was silent for an hour has an old one. The broker is therefore asked for the ends of the
streams, four times a second. Once the state includes these ends, it includes everything that was
stored before the question.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence

from joulie_bus.errors import BusError, StreamGap
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import messages
from joulie_bus.streams.records import Record, StreamTip
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold.commit import Input, Inputs
from joulie_projections.state.broker_clock import BrokerClock
from joulie_projections.state.completeness import Completeness, milliseconds

QUESTION_S = 0.25
MOST_BETWEEN_TICKS_S = 2 * QUESTION_S
PATIENCE_S = 4.0  # for one answer of the broker
CONFIRMED_S = 5.0  # without a confirmed answer for longer, this projector does not reach the broker
Tips = Mapping[Stream, StreamTip]


class RunningTime:
    """The time in which this component ran, of the time that passed.

    A component without CPU reads answers late. That says nothing about who was asked, so the time
    between two ticks counts only as far as a component that runs needs it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_tick = 0.0
        self._ticked = clock()

    def tick(self) -> None:
        """To be called every QUESTION_S seconds."""
        self._until_tick, self._ticked = self(), self._clock()

    def __call__(self) -> float:
        return self._until_tick + min(self._clock() - self._ticked, MOST_BETWEEN_TICKS_S)


class StreamEnds:
    """The ends of the fact streams, and since when no majority of the broker confirmed them."""

    def __init__(self, bus: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = BrokerClock()  # of the server that stamps readings
        self._bus = bus
        self._clock = clock
        self._ran = RunningTime(clock)
        self._confirmed = clock()  # a projector that starts has as long as one that is cut off
        self._silent_s, self._answered = 0.0, self._ran()  # at the last question with an answer

    def forget(self) -> None:
        """From now on there is a problem until an answer is a confirmed one."""
        self._confirmed, self._silent_s = -math.inf, math.inf

    async def ask(self) -> tuple[float, Tips] | None:
        """The ends, and the moment until which they are certain; None without an answer."""
        self._ran.tick()
        asked, ran = self._clock(), self._ran()
        try:
            tips = await self._answer(ran + PATIENCE_S)
        except (BusError, OSError):  # TimeoutError is an OSError
            return None
        moment = asked - max(tip.unconfirmed_ns for tip in tips) / 1e9
        self._confirmed = max(self._confirmed, moment)
        self._silent_s, self._answered = asked - self._confirmed, ran
        found = {tip.stream: tip for tip in tips}
        self.clock.note(found[Stream.TEL].at, self._clock())
        return moment, found

    async def _ask_all(self) -> Sequence[StreamTip]:
        """A task of its own: a gathered future that is cancelled is reported as an error."""
        return await asyncio.gather(*map(self._bus.tip, MERGE_ORDER))

    async def _answer(self, until_ran: float) -> Sequence[StreamTip]:
        """Raises TimeoutError if there is none although this component ran for so long."""
        asking = asyncio.create_task(self._ask_all())
        try:
            while not (await asyncio.wait([asking], timeout=QUESTION_S))[0]:
                self._ran.tick()
                if self._ran() > until_ran:
                    raise TimeoutError
            return await asking
        finally:
            asking.cancel()

    @property
    def silent_s(self) -> float:
        """Since the broker last confirmed the ends of all fact streams by a majority, without the
        time after its last answer in which this component did not run."""
        return self._silent_s + self._ran() - self._answered

    @property
    def problem(self) -> str:
        """Why this projector does not reach the broker; empty if it does."""
        if self.silent_s < CONFIRMED_S:
            return ""
        return f"no answer of a majority of the broker for {self.silent_s:.0f} s"


class Lag:
    """How far the committed state is behind; `committed` is called after each commit."""

    def __init__(
        self, bus: Log, ends: StreamEnds, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bus = bus
        self._ends = ends
        self._clock = clock
        self._complete = {stream: Completeness[StreamTip]() for stream in MERGE_ORDER}
        self._newest: tuple[float, Tips] = (-math.inf, {})  # the last answer
        self._inputs: Inputs = {}
        self._folded_at: dict[Stream, int] = {}  # the broker's time of the newest folded message

    def committed(self, inputs: Inputs, newest: Mapping[Stream, int]) -> None:
        """A projector without CPU commits several times between two answers."""
        self._inputs = inputs
        self._folded_at.update(newest)
        self._advance()

    async def follow(self) -> None:
        """Asks for the ends until cancelled."""
        is_known = False
        while True:
            if (answer := await self._ends.ask()) is not None:
                is_known = is_known or await self._read_folded_times(answer[1])
                self._note(*answer)
            await asyncio.sleep(QUESTION_S)

    async def _read_folded_times(self, tips: Tips) -> bool:
        """The times of the messages folded before this projector started, where the stream holds
        newer ones, as far as it still holds these."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = [
                    await self._read(stream, self._inputs[stream].sequence)
                    for stream, tip in tips.items()
                    if not self._includes(tip) and self._was_read(stream)
                ]
        except (BusError, OSError):
            return False
        kept = {record.stream: record.at for record in found if record is not None}
        self._folded_at = kept | self._folded_at
        return True

    def _was_read(self, stream: Stream) -> bool:
        return stream in self._inputs and self._inputs[stream].sequence > 0

    async def _read(self, stream: Stream, sequence: int) -> Record | None:
        """As the projector reads streams: its credential has no right to STREAM.MSG.GET."""
        try:
            return (await messages(self._bus, stream, sequence - 1, 1, PATIENCE_S))[0]
        except StreamGap:
            return None  # it was trimmed

    def _note(self, moment: float, tips: Tips) -> None:
        self._newest = moment, tips
        for stream, tip in tips.items():
            self._complete[stream].mark(tip, moment)
        self._advance()

    def _advance(self) -> None:
        """Of each stream alone: one that is always behind must not hide that others are not."""
        moment, tips = self._newest
        for stream, tip in tips.items():
            self._complete[stream].advance(self._includes)
            self._complete[stream].raise_to(moment - self._waited_s(tip))

    def _waited_s(self, tip: StreamTip) -> float:
        """How old the newest folded message is, if the stream holds newer ones."""
        if self._includes(tip):
            return 0.0
        folded_at = self._folded_at.get(tip.stream)
        return math.inf if folded_at is None else max(0, tip.at - folded_at) / 1e9

    def _includes(self, tip: StreamTip) -> bool:
        read = self._inputs.get(tip.stream)
        return tip.last == 0 or (read is not None and _is_included(tip, read))

    @property
    def behind_s(self) -> float:
        return self._clock() - min(complete.until for complete in self._complete.values())

    @property
    def behind_ms(self) -> int:
        return milliseconds(self.behind_s)

    @property
    def broker_ms(self) -> int:
        return milliseconds(self._ends.silent_s)


def _is_included(tip: StreamTip, read: Input) -> bool:
    """Never for a stream that replaced the one that was read."""
    return read.created == tip.created and read.sequence >= tip.last


def newest_times(records: Sequence[Record]) -> dict[Stream, int]:
    """The broker's time of the newest record of each stream."""
    return {record.stream: record.at for record in records}
