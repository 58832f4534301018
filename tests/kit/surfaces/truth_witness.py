"""Reads the streams and the commits of a running Joulie by itself, and what /proc says of it.

For each statement it knows two moments of its own clock between which the statement was made; a
statement is false if it holds at none of them. Ages are upper bounds. One that is too small is
false. One that is too large is false too, unless the component or the projector had no CPU for as
long: then it could not know better.
"""

import asyncio
import bisect
import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, Collection, Iterable
from typing import Any, NamedTuple

from sqlalchemy import func, select

from cpu_waits import CpuWaits
from joulie_bus.errors import BusError
from joulie_bus.events import PrioritizeDecided, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.chain.head import Head, statement_in
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.tables import checkpoint, decision
from truth_facts import Ends, Facts

SAMPLE_S = 0.1
FACTS = (Stream.TEL, Stream.OBS)  # of which the witness reads the facts
# An age may be older than the truth by this: it counts from the last question that was answered.
# The projector asks as the witness does, so it lacks answers of a broker without CPU as well.
OLDER_MS = 2_500
ANSWER_GAPS_S = 30.0  # in which the slowest answer to the witness counts
STALENESS_S = 300.0
LEDGER_SAMPLE_S = 0.5
LEASE = select(checkpoint.c.until).where(checkpoint.c.name == "projector")
EPOCH = select(checkpoint.c.epoch).where(checkpoint.c.name == "projector")
ENTRIES = select(func.count()).select_from(decision)
STARVED = 0.25  # of a time without CPU explains a late answer


class Statement(NamedTuple):
    """That a position includes everything stored until so long before now."""

    where: str
    position: int
    behind_ms: float
    began: float  # the statement was made after this
    ended: float  # and before this

    @property
    def component(self) -> str:
        return self.where.rpartition(", ")[2].replace("page", "console")


class _Sample(NamedTuple):
    asked: float
    answered: float
    ends: Ends


class Witness:
    """What is true, as read from the broker and the database."""

    def __init__(self, bus: JetStreamLog, subjects: Subjects, data: DataDirectory) -> None:
        self._bus = bus
        self._subjects = subjects
        self._data = data
        self.waits = CpuWaits()
        self._samples: list[_Sample] = []
        self._answered: list[float] = []
        self._commits: list[int] = []  # the last positions
        self._inputs: list[dict[Stream, int]] = []
        self.facts = Facts()
        self._read_to: dict[Stream, int] = {}  # the last sequence
        self.winners: dict[str, str] = {}  # by the id of the answer
        self.signs: list[float] = []  # when a message of the projector arrived
        self.decided_at = 0.0
        self._decided_ns: list[int] = []  # of all messages of the log
        self._signed: list[tuple[float, int]] = []  # when a head was read, and its entries
        self._ledger: list[tuple[float, float]] = []  # when it was read, how far it was behind
        self.excused_ms: list[float] = []  # by how much ages were too large for lack of CPU
        self._renewed = 0  # until when the projector has its lease

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncGenerator[None, None]:
        def sign(_: bytes) -> None:
            self.signs.append(time.monotonic())

        async with (
            self._bus.listening(self._subjects.beat, sign),
            self._bus.listening(self._subjects.delta, sign),
            asyncio.TaskGroup() as tasks,
        ):
            running = [
                tasks.create_task(self._sample()),
                tasks.create_task(self._sample_processes()),
                tasks.create_task(self._sample_ledger()),
                tasks.create_task(self._read(Stream.TEL, self._on_fact)),
                tasks.create_task(self._read(Stream.OBS, self._on_fact)),
                tasks.create_task(self._read(Stream.DEC, self._on_decision)),
                tasks.create_task(self._read(Stream.HEADS, self._on_head)),
            ]
            yield
            for task in running:
                task.cancel()

    async def _sample(self) -> None:
        while True:
            with contextlib.suppress(BusError):  # a broker without CPU answers late, or not
                await self._sample_ends()
            await asyncio.sleep(SAMPLE_S)

    async def _sample_processes(self) -> None:
        while True:
            self.waits.sample()
            await asyncio.sleep(SAMPLE_S)

    async def _sample_ends(self) -> None:
        asked = time.monotonic()
        tips = await asyncio.gather(*map(self._bus.tip, MERGE_ORDER))
        answered = time.monotonic()
        self._samples.append(_Sample(asked, answered, {tip.stream: tip.last for tip in tips}))
        self._answered.append(answered)

    async def _sample_ledger(self) -> None:
        def read() -> tuple[float, int]:
            with History.of(self._data.database) as history:
                renewed: int = history.connection.scalar(LEASE) or 0
            behind_s = seconds_behind(self._data.database)
            assert behind_s is not None, "the ledger cannot be read"
            return behind_s, renewed

        while True:
            asked = time.monotonic()
            behind_s, renewed = await asyncio.to_thread(read)
            self._ledger.append((asked, behind_s))
            if renewed != self._renewed:  # a component that misses heartbeats looks here
                self._renewed = renewed
                self.signs.append(time.monotonic())
            await asyncio.sleep(LEDGER_SAMPLE_S)

    def ledger_between(self, began: float, ended: float) -> tuple[float, float]:
        """The least and the most that the ledger was behind, from the sample before `began` to the
        one after `ended`."""
        moments = [moment for moment, _ in self._ledger]
        first = max(0, bisect.bisect_left(moments, began) - 1)
        behind = [behind for _, behind in self._ledger[first : bisect.bisect(moments, ended) + 1]]
        return min(behind, default=0.0), max(behind, default=math.inf)

    async def _read(self, stream: Stream, use: Any) -> None:
        wakeup = asyncio.Event()
        async with self._bus.reading(stream, 0, wakeup=wakeup) as reader:
            while True:
                await wait_and_clear(wakeup, gather_s=0.05)
                while records := reader.take(500):
                    for record in records:
                        use(record)
                        self._read_to[stream] = record.sequence
                    await asyncio.sleep(0)

    def _on_fact(self, record: Record) -> None:
        self.facts.add(record, codec.decoded(record.data, "here"))

    def _on_decision(self, record: Record) -> None:
        envelope = codec.open_envelope(record.data, "here")
        fact = codec.read(envelope, "here")
        self.decided_at = time.monotonic()
        self._decided_ns.append(envelope.ts)
        if isinstance(fact, PrioritizeDecided) and fact.top:
            self.winners[envelope.id] = fact.top[0].node

    def _on_head(self, record: Record) -> None:
        if isinstance(head := statement_in(record.data), Head):
            self._signed.append((time.monotonic(), head.commitment.size))

    def unsigned_s(self, began: float) -> float:
        """At most, the age of the first entry that no head contained that was read before. Messages
        of the log are its entries, in this order; some of them are no entries."""
        signed = max((size for at, size in self._signed if at <= began), default=0)
        unsigned = min(self._decided_ns[signed:], default=None)
        return 0.0 if unsigned is None else time.time() - unsigned / 1e9

    def read_commits(self) -> None:
        first = self._commits[-1] + 1 if self._commits else 1
        with History.of(self._data.database) as history:
            for manifest in history.manifests(first):
                inputs = dict(self._inputs[-1]) if self._inputs else {}
                inputs |= {each.stream: each.last for each in manifest.ranges}
                self._commits.append(manifest.p_to)
                self._inputs.append(inputs)

    def inputs_at(self, position: int) -> Ends | None:
        """How far the streams are read at a position; None if it is no end of a commit."""
        at = bisect.bisect_left(self._commits, position)
        known = at < len(self._commits) and self._commits[at] == position
        return self._inputs[at] if known and self._has_read(self._inputs[at]) else None

    def _has_read(self, inputs: Ends) -> bool:
        """A witness without CPU does not know yet what is true."""
        return all(self._read_to.get(each, 0) >= inputs.get(each, 0) for each in FACTS)

    @property
    def first(self) -> int:
        """The position of the first commit."""
        return self._commits[0]

    def newest(self) -> Ends:
        """How far the streams are read by the newest commit."""
        return self._inputs[-1] if self._inputs else {}

    def watts_at(self, inputs: Ends, now_ns: int, there: Collection[str]) -> tuple[float, int]:
        """The sum of the newest fresh readings of these nodes, and their number."""
        fresh_ns = STALENESS_S * 1e9
        return self.facts.watts_at(inputs, there, lambda each: now_ns - each.stored <= fresh_ns)

    def wrong(self, said: Statement, slack_ms: float = 0.0) -> str:
        """Why the statement is false; empty if it is true."""
        inputs = self.inputs_at(said.position)
        if inputs is None:
            return ""
        moment = said.began - (said.behind_ms + slack_ms) / 1000
        at = bisect.bisect_right(self._answered, moment) - 1
        if at >= 0 and not _includes(inputs, ends := self._samples[at].ends):
            age_ms = (said.began - self._samples[at].answered) * 1000
            return f"it lacks what was stored {age_ms:.0f} ms before: {ends} in {inputs}"
        complete = self._complete_until(inputs)
        true_ms = (said.ended - complete) * 1000
        older_ms = max(OLDER_MS, self._longest_gap_s(said.ended) * 1000)
        if said.behind_ms <= true_ms + older_ms or complete == -math.inf:
            return ""
        known_since = said.began - said.behind_ms / 1000
        waited_s = self.waits.between(known_since, said.ended, {"projector", said.component})
        if said.behind_ms <= true_ms + older_ms + waited_s * 1000:
            self.excused_ms.append(said.behind_ms - true_ms)
            return ""
        known = f"it includes everything until {true_ms:.0f} ms before"
        return f"{known}, and waited for a CPU for {waited_s:.1f} s"

    def _complete_until(self, inputs: Ends) -> float:
        for sample in reversed(self._samples):
            if _includes(inputs, sample.ends):
                return sample.asked
        return -math.inf

    def _longest_gap_s(self, before: float) -> float:
        """The longest time without an answer of the broker, of the last ones before a moment."""
        first = bisect.bisect_left(self._answered, before - ANSWER_GAPS_S)
        moments = [*self._answered[first : bisect.bisect_right(self._answered, before)], before]
        return max((later - each for each, later in itertools.pairwise(moments)), default=math.inf)

    def heard_since(self, moment: float) -> bool:
        return bool(self.signs) and self.signs[-1] >= moment

    def answered_since(self, moment: float) -> bool:
        return bool(self._answered) and self._answered[-1] >= moment

    def were_stopped(self, names: Iterable[str], began: float, ended: float) -> bool:
        """Whether one of these components was stopped or gone."""
        return bool(self.waits.stopped_between(began, ended) & {*names})

    def were_starved(self, names: Iterable[str], began: float, ended: float) -> bool:
        """Whether these components had no CPU for a part of the time."""
        return self.waits.between(began, ended, names) > STARVED * (ended - began)

    def in_database(self) -> tuple[int, int]:
        """The entries of the log, and the epoch of the projector."""
        with History.of(self._data.database) as history:
            entries: int = history.connection.scalar(ENTRIES) or 0
            epoch: int = history.connection.scalar(EPOCH) or 0
            return entries, epoch


def _includes(inputs: Ends, ends: Ends) -> bool:
    return all(inputs.get(stream, 0) >= last for stream, last in ends.items())
