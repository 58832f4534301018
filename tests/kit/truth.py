"""Compares what a running Joulie states about itself with its broker and its database.

The witness reads the streams and the commits by itself. For each statement it knows two moments of
its own clock between which the statement was made; a statement is false if it holds at none of
them.

Ages are upper bounds. One that is too small is false. One that is too large is false too, unless
the component or the projector had no CPU for as long: then it could not know better.
"""

import asyncio
import bisect
import contextlib
import itertools
import math
import re
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select

from cpu_waits import CpuWaits
from joulie_answers.here import status_of
from joulie_answers.schema.responses import Status
from joulie_answers.text.status import status_text
from joulie_bus.errors import BusError
from joulie_bus.events import NodeGone, NodeSeen, PrioritizeDecided, TelemetrySampled, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_console.stream.event_tail import LEDGER_KEPT_S
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.store.energy_lag import behind_s as ledger_behind_s
from joulie_projections.store.tables import checkpoint

SAMPLE_S = 0.1
SETTLE_S = 0.5
EVERY_S = 1.0
# An age may be older than the truth by this: it counts from the last question that was answered.
# The projector asks as the witness does, so it lacks answers of a broker without CPU as well.
OLDER_MS = 2_500
ANSWER_GAPS_S = 30.0  # in which the slowest answer to the witness counts
UNKNOWN_SHARE = 0.05  # of the ages, at most: a projector that starts knows none yet
APART_MS = 300  # between a position and an age that one scrape of metrics reads one after the other
STALENESS_S = 300.0
REPLY_S = 120.0
DECISIONS = 50  # newest ones that are compared at each look
LEDGER_SAMPLE_S = 0.5
LEDGER_SLACK_S = 1.5  # rounding, and the time of one sample
LEASE = select(checkpoint.c.until).where(checkpoint.c.name == "projector")
Ends = Mapping[Stream, int]


class FalseStatement(NamedTuple):
    at_s: float
    where: str
    statement: str
    truth: str


class Statement(NamedTuple):
    """That a position includes everything stored until so long before now."""

    where: str
    position: int
    behind_ms: float
    began: float  # the statement was made after this
    ended: float  # and before this

    @property
    def component(self) -> str:
        return self.where.removeprefix("status, ") if "status" in self.where else "console"


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
        self._watts: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
        self._names: list[tuple[int, str, bool]] = []  # sequence, node, whether it came
        self.winners: dict[str, str] = {}  # by the id of the answer
        self.signs: list[float] = []  # when a message of the projector arrived
        self.decided_at = 0.0
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
                tasks.create_task(self._sample_ledger()),
                tasks.create_task(self._read(Stream.TEL, self._on_reading)),
                tasks.create_task(self._read(Stream.OBS, self._on_node)),
                tasks.create_task(self._read(Stream.DEC, self._on_decision)),
            ]
            yield
            for task in running:
                task.cancel()

    async def _sample(self) -> None:
        while True:
            self.waits.sample()
            with contextlib.suppress(BusError):  # a broker without CPU answers late, or not
                await self._sample_ends()
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
                return ledger_behind_s(history.connection), renewed

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
                    await asyncio.sleep(0)

    def _on_reading(self, record: Record) -> None:
        fact = codec.decoded(record.data, "here")
        if isinstance(fact, TelemetrySampled):
            self._watts[fact.node].append((record.sequence, record.at, fact.power_mw / 1000))

    def _on_node(self, record: Record) -> None:
        fact = codec.decoded(record.data, "here")
        if isinstance(fact, NodeSeen | NodeGone):
            self._names.append((record.sequence, fact.node, isinstance(fact, NodeSeen)))

    def _on_decision(self, record: Record) -> None:
        envelope = codec.open_envelope(record.data, "here")
        fact = codec.read(envelope, "here")
        self.decided_at = time.monotonic()
        if isinstance(fact, PrioritizeDecided) and fact.top:
            self.winners[envelope.id] = fact.top[0].node

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
        return self._inputs[at] if known else None

    def watts_at(self, inputs: Ends, now_ns: int) -> tuple[float, int]:
        """The sum of the newest fresh readings of all nodes, and their number."""
        last, watts, count = inputs.get(Stream.TEL, 0), 0.0, 0
        for readings in self._watts.values():
            at = bisect.bisect_right(readings, (last, math.inf, math.inf)) - 1
            if at >= 0 and now_ns - readings[at][1] <= STALENESS_S * 1e9:
                watts, count = watts + readings[at][2], count + 1
        return watts, count

    def names_at(self, inputs: Ends) -> set[str]:
        last, there = inputs.get(Stream.OBS, 0), set[str]()
        for sequence, node, came in self._names:
            if sequence <= last:
                (there.add if came else there.discard)(node)
        return there

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


_SILENT = r"(\w+) (?:received no heartbeat|has read no answer) .*for ([\d.]+) s\b"
_LATE = "behind the broker|of before its start|no heartbeat"


def _includes(inputs: Ends, ends: Ends) -> bool:
    return all(inputs.get(stream, 0) >= last for stream, last in ends.items())


class Judge:
    """Asks the page and the terminal, and keeps what was false."""

    def __init__(self, witness: Witness, data: DataDirectory, console: str) -> None:
        self._witness = witness
        self._data = data
        self._console = console
        self._began = time.monotonic()
        self.false: list[FalseStatement] = []
        self.checked = 0
        self.looks = self.unanswered = 0
        self.worst_ms = 0.0
        self.ages = self.unknown = 0
        self.list_ms: list[float] = []  # how long the lists of decisions took
        self._reading = asyncio.Lock()

    async def until_ready(self) -> None:
        """Until the console answers; meanwhile the witness reads what was stored before."""
        status = await asyncio.to_thread(status_of, self._data, time.time_ns(), STALENESS_S)
        self._witness.waits.pids = {part.name: part.pid for part in status.parts}
        while True:
            await asyncio.sleep(10)
            with contextlib.suppress(urllib.error.HTTPError, TimeoutError):
                await self._get("/v1/cluster")
                return

    async def run(self, seconds: float) -> None:
        """Looks at each part once a second; a slow answer delays no other part."""
        looks = (self._look_at_cluster, self._look_at_names, self._look_at_status)
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._repeat(look, until) for look in looks))

    async def _repeat(self, look: Callable[[], Awaitable[None]], until: float) -> None:
        while (began := time.monotonic()) < until:
            try:
                await look()
                self.looks += 1
            except TimeoutError:  # a console without CPU states nothing
                self.unanswered += 1
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))

    async def _look_at_cluster(self) -> None:
        began = time.monotonic()
        cluster = await self._get("/v1/cluster")
        ended = time.monotonic()
        await self._settle()
        self._check_cluster(cluster, began, ended)

    async def _look_at_names(self) -> None:
        shown = await self._get("/v1/map")
        decisions: dict[str, Any] = {"items": []}
        began = time.monotonic()
        with contextlib.suppress(urllib.error.HTTPError):  # 503: the console states nothing
            decisions = await self._get(f"/v1/decisions?limit={DECISIONS}")
        self.list_ms.append((time.monotonic() - began) * 1000)
        await self._settle()
        self._check_names(shown, decisions)

    async def _look_at_status(self) -> None:
        began = time.monotonic()
        status = await asyncio.to_thread(status_of, self._data, time.time_ns(), STALENESS_S)
        ended = time.monotonic()
        await self._settle()
        self._check_status(status, began, ended)

    async def _settle(self) -> None:
        """Until the witness has read the streams and the commits up to now."""
        await asyncio.sleep(SETTLE_S)
        async with self._reading:
            await asyncio.to_thread(self._witness.read_commits)

    async def _get(self, path: str) -> Any:
        def fetch() -> bytes:
            with urllib.request.urlopen(f"{self._console}{path}", timeout=REPLY_S) as reply:
                body: bytes = reply.read()
                return body

        return msgspec.json.decode(await asyncio.to_thread(fetch))

    def _expect(self, is_true: bool, where: str, statement: str, truth: str) -> None:
        self.checked += 1
        if not is_true:
            at_s = time.monotonic() - self._began
            self.false.append(FalseStatement(round(at_s, 1), where, statement, truth))

    def _expect_age(self, said: Statement, slack_ms: float = 0.0) -> None:
        self.ages += 1
        if said.behind_ms >= NEVER_MS:
            self.unknown += 1
            return
        self.worst_ms = max(self.worst_ms, said.behind_ms)
        wrong = self._witness.wrong(said, slack_ms)
        text = f"position {said.position} is {said.behind_ms:.0f} ms behind"
        self._expect(not wrong, said.where, text, wrong)

    def _check_cluster(self, told: Any, began: float, ended: float) -> None:
        said = Statement("page", told["position"], told["behind_ms"], began, ended)
        self._expect_age(said)
        heard = self._witness.heard_since(began - told["age_ms"] / 1000 - 1.0)
        self._expect(heard, "page", f"heard {told['age_ms']} ms ago", "no message since")
        inputs = self._witness.inputs_at(told["position"])
        if inputs is not None:
            watts, count = self._witness.watts_at(inputs, told["at_ms"] * 1_000_000)
            known = len(self._witness.names_at(inputs))
            self._expect(
                abs(told["measured_w"] - watts) <= 0.1 + watts * 1e-6,
                "page",
                f"{told['measured_w']:.1f} W measured",
                f"{watts:.1f} W",
            )
            shown = (told["nodes"], told["unmeasured"])
            self._expect(
                shown == (known, known - count), "page", f"{shown} nodes", f"{(known, count)}"
            )
        for warning in told["warnings"]:
            self._check_warning(warning, said)

    def _check_warning(self, warning: Any, said: Statement) -> None:
        """The figures of the ages are those of the fields, which are compared besides."""
        part, text = warning["part"], warning["text"]
        where = f"page, warning of {part}"
        if "received no message" in text:
            self._expect("console has no CPU" in text, where, text, "the projector runs")
        elif "behind the cluster" in text:
            shown = re.search(r"is up to (\d+) s behind", text)
            is_same = shown is None or abs(int(shown[1]) * 1000 - said.behind_ms) <= 1000
            self._expect(is_same, where, text, f"{said.behind_ms:.0f} ms in the same answer")
        elif part == "extender":
            idle_s = time.monotonic() - self._witness.decided_at
            self._expect(idle_s > 29, where, text, f"the last decision was {idle_s:.1f} s ago")
        elif part in ("broker", "ledger"):
            self._check_silence(part, text, said)
        elif "was not answered within" in text:
            pass  # by a thread of the console without CPU
        elif part == "telemetry":
            pass  # `unmeasured` is compared
        else:
            self._expect(False, where, text, "the broker, the operator and all cards work")

    def _check_silence(self, part: str, text: str, said: Statement) -> None:
        where, shown = f"page, warning of {part}", re.search(r"(\d+) s:", text)
        if shown is None:
            self._expect(False, where, text, "the broker works")
        elif part == "ledger":
            span = said.began - LEDGER_KEPT_S, said.ended
            self._expect_ledger(where, text, float(shown[1]), span)
        else:  # what is not read makes the page older by as much
            is_late = int(shown[1]) * 1000 <= said.behind_ms + OLDER_MS
            self._expect(is_late, where, text, f"{said.behind_ms:.0f} ms behind")

    def _expect_ledger(
        self, where: str, text: str, behind_s: float, span: tuple[float, float]
    ) -> None:
        least, most = self._witness.ledger_between(*span)
        is_true = least - LEDGER_SLACK_S <= behind_s <= most + LEDGER_SLACK_S
        self._expect(is_true, where, text, f"between {least:.1f} and {most:.1f} s")

    def _check_names(self, shown: Any, decisions: Any) -> None:
        inputs = self._witness.inputs_at(shown["position"])
        if inputs is not None:
            there, named = self._witness.names_at(inputs), set(shown["name"])
            differing = sorted(there ^ named)[:5]
            self._expect(not differing, "page, map", f"{len(named)} names", f"not {differing}")
        for entry in decisions["items"]:
            winner = self._witness.winners.get(entry["id"])
            if entry["verb"] == "prioritize" and winner is not None:
                is_same = winner == entry["winner"]
                self._expect(is_same, "page, decisions", entry["winner"], winner)

    def _check_status(self, status: Status, began: float, ended: float) -> None:
        late = dict[str, float]()
        for part in status.parts:
            seconds = part.view_behind_s if part.lag_s is None else part.lag_s
            if part.position is None or seconds is None:
                continue
            late[part.name] = seconds
            where = f"status, {part.name}"
            said = Statement(where, part.position, seconds * 1000, began, ended)
            self._expect_age(said, APART_MS)
        ledger_s = status.ledger_behind_s
        where = "status, ledger"
        self._expect_ledger(where, f"{ledger_s:.1f} s behind", ledger_s, (began, ended))
        self._check_stale_lines(status_text(status), late)

    def _check_stale_lines(self, text: str, late: Mapping[str, float]) -> None:
        stale = [line for line in text.splitlines() if line.startswith("STALE")]
        named = any(re.search(_LATE, line) for line in stale)
        # The console is paused while it is not used.
        behind_s = max((s for name, s in late.items() if name != "console"), default=0.0)
        self._expect(
            named or behind_s <= 2.0, "status", "no STALE line", f"{behind_s:.1f} s behind"
        )
        for line in stale:
            if shown := re.search(_SILENT, line):
                # What a component has not read makes it older by as much.
                own_s = late.get(shown[1], 0.0)
                is_late = float(shown[2]) <= own_s + OLDER_MS / 1000
                self._expect(is_late, "status", line, f"{own_s:.1f} s behind")
            elif "is down; see" in line:
                self._expect(False, "status", line, "all components run")


def report(false: Sequence[FalseStatement]) -> str:
    return "\n".join(f"{f.at_s:7.1f} s  {f.where}: {f.statement!r}: {f.truth}" for f in false)
