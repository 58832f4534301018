"""Asks every surface of a running Joulie, and keeps the statements that are not true.

The page, the status and the metrics are judged here; what commands print in `truth_commands`. Each
is judged by the witness and by /proc, never by another surface.
"""

import asyncio
import contextlib
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cpu_waits import is_running
from joulie_answers.here import status_of
from joulie_answers.schema.responses import Status
from joulie_answers.text.status import status_text
from joulie_console.stream.event_tail import LEDGER_KEPT_S
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.state.completeness import NEVER_MS
from truth_alerts import Scrapes
from truth_facts import MS, Ends, Reading
from truth_witness import OLDER_MS, STALENESS_S, Statement, Witness

SETTLE_S = 0.5
EVERY_S = 1.0
UNKNOWN_SHARE = 0.05  # of the ages, at most: a projector that starts knows none yet
APART_MS = 300  # between a position and an age that one scrape of metrics reads one after the other
REPLY_S = 120.0
STOPPED_REPLY_S = 10.0  # while a component is stopped that a console may wait for
WAITED_FOR = {"projector", "nats-server", "ledger"}
DECISIONS = 50  # newest ones that are compared at each look
LEDGER_SLACK_S = 1.5  # rounding, and the time of one sample
LEDGER_LOOKS_S = 6.0  # its own metric is an upper bound: it looks each five seconds
NOTICED_S = 8.0  # a component that is stopped for so long is named
PAUSED_AFTER_S = 29.0  # without a query of the console
FREE_SLACK = 2**29  # bytes that others write to the disk meanwhile
UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0}
SAMPLE = re.compile(r"^(joulie_\w+(?:\{.*\})?) (\S+)$", re.M)
# Sentences of `joulie status`, and the components of which one has a fault if they are true.
# `own` is the component that the sentence begins with.
SILENCE = r"(?:no heartbeat of the projector|no answer of a majority) for ([\d.]+) s\b"
FAULTS: Mapping[str, Sequence[str]] = {
    r"does not answer for its metrics": ("own",),
    r"received no heartbeat of the projector yet": ("own", "projector", "nats-server"),
    r"behind the broker|how far it is behind": ("own", "projector", "nats-server"),
    r"of before its start|does not lead yet": ("projector", "nats-server"),
    r"are not at the broker": ("extender", "nats-server"),
}


class FalseStatement(NamedTuple):
    at_s: float
    where: str
    statement: str
    truth: str


class Judge:
    """Asks the surfaces, and keeps what was false."""

    def __init__(self, witness: Witness, data: DataDirectory, console: str) -> None:
        self.witness = witness
        self.data = data
        self._console = console
        self._began = time.monotonic()
        self.false: list[FalseStatement] = []
        self.checked: dict[str, int] = {}  # by surface
        self.looks = self.unanswered = 0
        self.worst_ms = 0.0
        self.ages = self.unknown = 0
        self.list_ms: list[float] = []  # how long the lists of decisions took
        self.queried_at = 0.0  # when the console answered last
        self.free = (0, 0)  # bytes on the disk, before the last status and after it
        self.excuses = True  # a component without CPU may be late
        self.scrapes = Scrapes()
        self.last: dict[str, Any] = {}  # the answer of each surface, with its moments
        self.stopped_at: dict[str, float] = {}  # components that this drill has stopped
        self._reading = asyncio.Lock()

    def twin(self) -> "Judge":
        """Another judge of the same witness, which has heard nothing yet, and takes no lack of CPU
        for a reason: what it is given is a lie on any machine."""
        twin = Judge(self.witness, self.data, self._console)
        twin.queried_at, twin.stopped_at = self.queried_at, self.stopped_at
        twin.free = self.free
        twin.excuses = False
        return twin

    async def until_ready(self) -> None:
        """Until the console answers and the ledger holds energy. Meanwhile the witness reads what
        was stored before."""
        await self._status()
        while True:
            await asyncio.sleep(2)
            with contextlib.suppress(urllib.error.HTTPError, TimeoutError):
                if (await self.get("/v1/energy"))["series"]:
                    return

    async def run(self, seconds: float, looks: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Looks at each surface once a second; a slow answer delays no other one."""
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

    async def settle(self) -> None:
        """Until the witness has read the streams and the commits up to now."""
        await asyncio.sleep(SETTLE_S)
        async with self._reading:
            await asyncio.to_thread(self.witness.read_commits)

    async def get(self, path: str) -> Any:
        reply_s = STOPPED_REPLY_S if WAITED_FOR & {*self.stopped_at} else REPLY_S

        def fetch() -> bytes:
            with urllib.request.urlopen(f"{self._console}{path}", timeout=reply_s) as reply:
                body: bytes = reply.read()
                return body

        body = await asyncio.to_thread(fetch)
        self.queried_at = time.monotonic()
        return msgspec.json.decode(body)

    def expect(self, is_true: bool, where: str, statement: object, truth: object) -> None:
        surface = where.partition(",")[0]
        self.checked[surface] = self.checked.get(surface, 0) + 1
        if not is_true:
            at_s = round(time.monotonic() - self._began, 1)
            self.false.append(FalseStatement(at_s, where, str(statement), str(truth)))

    def expect_found(self, where: str, shown: object, text: str) -> bool:
        self.expect(shown is not None, where, text[:300], "a figure")
        return shown is not None

    def expect_same(self, where: str, what: str, stated: object, truth: object) -> None:
        self.expect(stated == truth, where, f"{what} {stated}", truth)

    def expect_near(
        self, where: str, what: str, stated: float | None, truth: float, slack: float = 1e-6
    ) -> None:
        near = stated is not None and abs(stated - truth) <= slack * max(1.0, abs(truth))
        self.expect(near, where, f"{what} {stated}", truth)

    def expect_age(self, said: Statement, slack_ms: float = 0.0) -> None:
        self.ages += 1
        self.worst_ms = max(self.worst_ms, said.behind_ms)
        wrong = self.witness.wrong(said, slack_ms)
        text = f"position {said.position} is {said.behind_ms:.0f} ms behind"
        self.expect(not wrong, said.where, text, wrong)

    def expect_ledger(
        self,
        where: str,
        text: str,
        behind_s: float,
        span: tuple[float, float],
        older_s: float = 0.0,
    ) -> None:
        least, most = self.witness.ledger_between(*span)
        is_true = least - LEDGER_SLACK_S <= behind_s <= most + LEDGER_SLACK_S + older_s
        self.expect(is_true, where, text, f"between {least:.1f} and {most:.1f} s")

    def _is_explained(self, names: Sequence[str], began: float, ended: float) -> bool:
        """Whether one of these components was stopped or gone, or they had no CPU."""
        witness = self.witness
        is_starved = self.excuses and witness.were_starved(names, began, ended)
        return is_starved or witness.were_stopped(names, began, ended)

    def noticed(self, names: Sequence[str]) -> list[str]:
        """Those of these components that are stopped for so long that they must be named."""
        now = time.monotonic()
        return [name for name in names if now - self.stopped_at.get(name, now) > NOTICED_S]

    # --- the page -----------------------------------------------------------------------------

    async def look_at_cluster(self) -> None:
        began = time.monotonic()
        cluster = await self.get("/v1/cluster")
        ended = time.monotonic()
        await self.settle()
        self.last["page"] = (cluster, began, ended)
        self.check_cluster(*self.last["page"])

    async def look_at_names(self) -> None:
        shown = await self.get("/v1/map")
        decisions: dict[str, Any] = {"items": []}
        began = time.monotonic()
        with contextlib.suppress(urllib.error.HTTPError):  # 503: the console states nothing
            decisions = await self.get(f"/v1/decisions?limit={DECISIONS}")
        self.list_ms.append((time.monotonic() - began) * 1000)
        await self.settle()
        self.check_names(shown, decisions)

    def check_cluster(self, told: Any, began: float, ended: float) -> None:
        behind_ms, age_ms = told["behind_ms"], told["age_ms"]
        self._expect_known("page", behind_ms, began, ended)
        if told["spooled"] is None:  # reports come each second while the extender has a broker
            names = ("extender", "nats-server", "console")
            known = not self._is_explained(names, began - NOTICED_S, ended)
            self.expect(not known, "page", "an unknown spool", "the extender runs")
        said = Statement("page", told["position"], behind_ms or 0, began, ended)
        if behind_ms is not None:
            self.expect_age(said)
        if age_ms is not None:
            heard = self.witness.heard_since(began - age_ms / 1000 - 1.0)
            self.expect(heard, "page", f"heard {age_ms} ms ago", "no message since")
        inputs = self.witness.inputs_at(told["position"])
        if inputs is not None:
            self._check_figures(told, inputs)
        for warning in told["warnings"]:
            self._check_warning(warning, told, said)
        if self.noticed(["projector", "nats-server"]):
            named = any(each["part"] in ("projector", "broker") for each in told["warnings"])
            self.expect(named, "page", "no warning", f"stopped: {self.stopped_at}")

    def _expect_known(self, where: str, age: float | None, began: float, ended: float) -> None:
        """An age is unknown at a start only, or while what it depends on has a fault."""
        self.ages += 1
        if age is None or age >= NEVER_MS:
            self.unknown += 1
            names = [where.rpartition(", ")[2].replace("page", "console")]
            names += ["projector", "nats-server"]
            known = not self._is_explained(names, began - 30, ended)
            self.expect(not known, where, "an unknown age", "all components run")

    def _check_figures(self, told: Any, inputs: Ends) -> None:
        facts = self.witness.facts
        watts, count = self.witness.watts_at(inputs, told["at_ms"] * MS, facts.known_at(inputs))
        stated_w = told["measured_w"]
        if count:
            self.expect_near("page", "W measured", stated_w, watts)
        else:
            self.expect(stated_w is None, "page", f"W measured {stated_w}", "no reading is fresh")
        nodes, cards = facts.known_at(inputs), facts.cards_at(inputs)
        pods = facts.pods_at(inputs).values()
        running = sum(bool(pod.node) and not pod.finished for pod in pods)
        for name, truth in {
            "nodes": len(nodes),
            "unmeasured": len(nodes) - count,
            "cards": len(cards),
            "cards_unhealthy": sum(not card.healthy for card in cards.values()),
            "pods_running": running,
            "pods_pending": sum(not pod.node and not pod.finished for pod in pods),
        }.items():
            self.expect_same("page", name, told[name], truth)

    def _check_warning(self, warning: Any, told: Any, said: Statement) -> None:
        """The figures of the ages are those of the fields, which are compared besides."""
        part, text = warning["part"], warning["text"]
        where = f"page, warning of {part}"
        span = said.began - NOTICED_S, said.ended
        if "received no message" in text or "behind the cluster" in text:
            shown = re.search(r"is up to (\d+) s behind", text)
            is_same = shown is None or abs(int(shown[1]) * 1000 - said.behind_ms) <= 1000
            self.expect(is_same, where, text, f"{said.behind_ms:.0f} ms in the same answer")
            names = ("projector", "nats-server", "console")
            is_true = said.behind_ms >= 1000 or self._is_explained(names, *span)
            self.expect(is_true, where, text, "all components run")
        elif part == "extender":
            self._check_extender(where, text, span)
        elif part in ("broker", "ledger"):
            self._check_silence(part, text, said)
        elif "was not answered within" in text:
            pass  # by a thread of the console without CPU
        elif part == "telemetry":
            shown = re.match(r"(\d+) of (\d+) nodes", text)
            stated = shown and (int(shown[1]), int(shown[2]))
            self.expect_same(where, text, stated, (told["unmeasured"], told["nodes"]))
        else:
            self.expect(False, where, text, "the broker, the operator and all cards work")

    def _check_extender(self, where: str, text: str, span: tuple[float, float]) -> None:
        if "are not at the broker" in text:
            is_true = self._is_explained(("extender", "nats-server"), *span)
            self.expect(is_true, where, text, "the extender and the broker run")
            return
        idle_s = time.monotonic() - self.witness.decided_at
        self.expect(idle_s > 29, where, text, f"the last decision was {idle_s:.1f} s ago")

    def _check_silence(self, part: str, text: str, said: Statement) -> None:
        where, shown = f"page, warning of {part}", re.search(r"(\d+) s:", text)
        if shown is None:
            self.expect(False, where, text, "the broker works")
        elif part == "ledger":
            span = said.began - LEDGER_KEPT_S, said.ended
            self.expect_ledger(where, text, float(shown[1]), span)
        else:  # what is not read makes the page older by as much
            is_late = int(shown[1]) * 1000 <= said.behind_ms + OLDER_MS
            self.expect(is_late, where, text, f"{said.behind_ms:.0f} ms behind")

    def check_names(self, shown: Any, decisions: Any) -> None:
        inputs = self.witness.inputs_at(shown["position"])
        if inputs is not None:
            there, named = self.witness.facts.known_at(inputs), {*shown["name"]}
            differing = sorted(there ^ named)[:5]
            self.expect(not differing, "lists, map", f"{len(named)} names", f"not {differing}")
        for entry in decisions["items"]:
            winner = self.witness.winners.get(entry["id"])
            if entry["verb"] == "prioritize" and winner is not None:
                self.expect_same("lists, decisions", "winner", entry["winner"], winner)

    # --- the status ---------------------------------------------------------------------------

    async def _status(self) -> Status:
        status = await asyncio.to_thread(status_of, self.data, time.time_ns(), STALENESS_S)
        self.witness.waits.pids = {part.name: part.pid for part in status.parts}
        return status

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.data.path).free

    async def look_at_status(self) -> None:
        before, began = await asyncio.to_thread(self.witness.in_database), time.monotonic()
        free = self._free_bytes()
        status = await self._status()
        self.free = free, self._free_bytes()
        ended, after = time.monotonic(), await asyncio.to_thread(self.witness.in_database)
        await self.settle()
        self.last["status"] = (status, (before, after), began, ended)
        self.last["status text"] = (status_text(status), began, ended)
        self.check_status(*self.last["status"])
        self.check_text(*self.last["status text"])

    def check_status(
        self,
        status: Status,
        counted: tuple[tuple[int, int], tuple[int, int]],
        began: float,
        ended: float,
    ) -> None:
        (least, _), (most, epoch) = counted
        where = "status"
        self.expect(least <= status.entries <= most, where, f"{status.entries} entries", most)
        self.expect_same(where, "epoch", status.epoch, epoch)
        self.expect(0 <= status.signed_to <= most, where, f"signed {status.signed_to}", most)
        for part in status.parts:
            alive = Path(f"/proc/{part.pid}").exists()
            self.expect_same(where, f"{part.name} alive", part.alive, alive)
            seconds = part.view_behind_s if part.lag_s is None else part.lag_s
            if part.paused:
                self._expect_unread(where, f"{part.name} paused", began)
            if part.position is None or seconds is None:
                continue
            named = f"status, {part.name}"
            said = Statement(named, part.position, seconds * 1000, began, ended)
            self.expect_age(said, APART_MS)
        ledger_s = status.ledger_behind_s
        assert ledger_s is not None, "the ledger cannot be read"
        text = f"{ledger_s:.1f} s behind"
        self.expect_ledger("status, ledger", text, ledger_s, (began, ended))
        self._check_readings(status)
        if (free := status.room.free_bytes) is not None:
            is_true = min(self.free) - FREE_SLACK <= free <= max(self.free) + FREE_SLACK
            self.expect(is_true, where, f"{free} bytes free", self.free)

    def _expect_unread(self, where: str, text: str, began: float) -> None:
        """A query that was answered since then may have come after the statement."""
        unread_s = began - self.queried_at
        is_read = 0 <= unread_s < PAUSED_AFTER_S
        self.expect(not is_read, where, text, f"read {unread_s:.0f} s before")

    def _check_readings(self, status: Status) -> None:
        """Those of the state at the position; a reading may become stale meanwhile."""
        inputs = self.witness.inputs_at(status.position)
        if inputs is None:
            return
        nodes = self.witness.facts.known_at(inputs)
        _, fresh = self.witness.watts_at(inputs, time.time_ns(), nodes)
        found = status.readings
        stated = (found.nodes, found.fresh)
        self.expect(
            stated[0] == len(nodes) and 0 <= stated[1] - fresh <= 1,
            "status",
            f"(nodes, fresh) {stated}",
            (len(nodes), fresh),
        )

    def check_text(self, text: str, began: float, ended: float) -> None:
        """Each line by the witness and by /proc; that a fault is named, and none that is not."""
        lines = text.splitlines()
        stale = [line.removeprefix("STALE").strip() for line in lines if line.startswith("STALE")]
        for found in re.finditer(r"^  (\S+) +pid (\d+)", text, re.M):
            pid = self.witness.waits.pids.get(found[1])
            self.expect_same("status text", f"{found[1]} pid", int(found[2]), pid)
        for found in re.finditer(r"^  (\S+) +down", text, re.M):
            pid = self.witness.waits.pids[found[1]]
            self.expect(not is_running(pid), "status text", found[0], "its process runs")
        if shown := re.search(r"^readings +(\d+) of (\d+) nodes fresh", text, re.M):
            nodes = self.witness.facts.known_at(self.witness.newest())
            self.expect(int(shown[1]) <= int(shown[2]), "status text", shown[0], len(nodes))
        for line in stale:
            self._check_stale(line, began, ended)
        for name in self.noticed(["projector", "extender", "console", "operator", "ledger"]):
            named = any(line.startswith(name) or f"the {name}" in line for line in stale)
            self.expect(named, "status text", f"no STALE line of {name}: {stale}", "it is stopped")
        if self.noticed(["nats-server"]):
            named = any("broker" in line for line in stale)
            self.expect(named, "status text", f"no STALE line of it: {stale}", "it is stopped")

    def _check_stale(self, line: str, began: float, ended: float) -> None:
        own = re.split(r"[ ,]", line.removeprefix("broker: ").removeprefix("the "), maxsplit=1)[0]
        if "is down; see" in line:
            pid = self.witness.waits.pids.get(own, 0)
            self.expect(not is_running(pid), "status text", line, "its process runs")
            return
        if shown := re.search(r"lacks facts of the last ([\d.]+) (ms|s|min)", line):
            unit_s = UNITS_S[shown[2]]
            self.expect_ledger(
                "status text", line, float(shown[1]) * unit_s, (began, ended), unit_s
            )
            return
        if shown := re.search(r"without a signed head is ([\d.]+) (s|min) old", line):
            self._check_unsigned(line, float(shown[1]), UNITS_S[shown[2]], began)
            return
        if shown := re.search(r"(\d+) node\(s\) without a fresh reading", line):
            inputs = self.witness.newest()
            nodes = self.witness.facts.known_at(inputs)
            _, fresh = self.witness.watts_at(inputs, time.time_ns(), nodes)
            truth = len(nodes) - fresh
            self.expect(abs(int(shown[1]) - truth) <= 1, "status text", line, truth)
            return
        if shown := re.search(SILENCE, line):
            reader = own if "heartbeat" in line else "projector"
            is_true = self._was_silent(reader, "heartbeat" in line, float(shown[1]), began, ended)
            self.expect(is_true, "status text", line, "messages came, and it had a CPU")
            return
        faults = next((names for what, names in FAULTS.items() if re.search(what, line)), None)
        names = [own if name == "own" else name for name in faults or ()]
        span = began - NOTICED_S, ended
        is_true = faults is not None and self._is_explained(names, *span)
        self.expect(is_true, "status text", line, f"{names} run")

    def _check_unsigned(self, line: str, stated: float, unit_s: float, began: float) -> None:
        most_s = self.witness.unsigned_s(began)
        is_true = (stated - 1) * unit_s <= most_s
        self.expect(is_true, "status text", line, f"{most_s:.0f} s at most")

    def _was_silent(
        self, reader: str, of_projector: bool, silent_s: float, began: float, ended: float
    ) -> bool:
        """Whether no message came for so long, or the reader was stopped, or had no CPU for half of
        the time."""
        witness, since = self.witness, began - silent_s
        spoke = witness.heard_since if of_projector else witness.answered_since
        stopped = witness.were_stopped([reader, "projector", "nats-server"], since, ended)
        waited_s = witness.waits.between(since, ended, [reader])
        is_starved = self.excuses and waited_s > silent_s / 2
        return not spoke(since + OLDER_MS / 1000) or stopped or is_starved

    # --- metrics ------------------------------------------------------------------------------

    async def look_at_metrics(self) -> None:
        before, began = await asyncio.to_thread(self.witness.in_database), time.monotonic()
        found = await self.scrape_all()
        ended, after = time.monotonic(), await asyncio.to_thread(self.witness.in_database)
        await self.settle()
        self.scrapes.add(found)
        self.last["metrics"] = (found, (before, after), began, ended)
        self.check_metrics(*self.last["metrics"])

    async def scrape_all(self) -> dict[str, Mapping[str, float]]:
        ran = self.data.running()
        assert ran is not None
        scraped = await asyncio.gather(*(self._scrape(each) for each in ran.metrics.values()))
        return dict(zip(ran.metrics, scraped, strict=True))

    async def _scrape(self, address: str) -> Mapping[str, float]:
        """Empty if it does not answer within a second."""

        def fetch() -> str:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=1.0) as reply:
                text: str = reply.read().decode()
                return text

        try:
            text = await asyncio.to_thread(fetch)
        except (TimeoutError, OSError):
            return {}
        return {name: float(value) for name, value in SAMPLE.findall(text)}

    def check_metrics(
        self,
        found: Mapping[str, Mapping[str, float]],
        counted: tuple[tuple[int, int], tuple[int, int]],
        began: float,
        ended: float,
    ) -> None:
        (_, epoch), (most, _) = counted
        for part, gauges in found.items():
            where = f"metrics, {part}"
            if not gauges:
                silent = not self._is_explained([part], began - NOTICED_S, ended)
                self.expect(not silent, where, "no answer", "it runs")
                continue
            age_s = gauges.get("joulie_lag_seconds", gauges.get("joulie_view_behind_seconds"))
            position = gauges.get("joulie_position")
            if position is not None and age_s is not None:
                said = Statement(where, int(position), age_s * 1000, began, ended)
                self.expect_age(said, APART_MS)
            if gauges.get("joulie_view_paused"):
                self._expect_unread(where, "paused", began)
                self.expect(age_s is None, where, f"paused, and {age_s} s behind", "no age")
        projector, ledger = found.get("projector", {}), found.get("ledger", {})
        if "joulie_epoch" in projector:
            self.expect_same("metrics, projector", "epoch", projector["joulie_epoch"], epoch)
        if (written := projector.get("joulie_decisions_written_total")) is not None:
            self.expect(written <= most, "metrics, projector", f"{written} written", most)
        if "joulie_position" in ledger:
            self._check_ledger(ledger, began, ended)

    def _check_ledger(self, gauges: Mapping[str, float], began: float, ended: float) -> None:
        where = "metrics, ledger"
        behind_s = gauges["joulie_ledger_lag_seconds"]
        text = f"{behind_s:.1f} s behind"
        self.expect_ledger(where, text, behind_s, (began, ended), LEDGER_LOOKS_S)
        inputs = self.witness.inputs_at(int(gauges["joulie_position"]))
        if inputs is None:
            return
        facts = self.witness.facts
        states = [value for name, value in gauges.items() if name.startswith("joulie_nodes{")]
        nodes = facts.nodes_at(inputs)
        self.expect_same(where, "nodes", sum(states), len(nodes))
        unread, watts = gauges["joulie_nodes_unread"], gauges.get("joulie_power_watts")
        newest_ms = facts.newest_reading_ms(inputs)

        def is_fresh(reading: Reading) -> bool:
            return reading.at_ms >= newest_ms - 60_000

        truth_w, count = facts.watts_at(inputs, nodes, is_fresh)
        self.expect_same(where, "unread", unread, len(nodes) - count)
        if watts is not None:
            self.expect_near(where, "watts", watts, truth_w)
        stated = gauges['joulie_gpus{of="nodes"}']
        self.expect_same(where, "GPUs", stated, sum(_cards_of(each) for each in nodes.values()))


def _cards_of(node: Any) -> float:
    return float(node.gpus)


def report(false: Sequence[FalseStatement]) -> str:
    return "\n".join(f"{f.at_s:7.1f} s  {f.where}: {f.statement!r}: {f.truth}" for f in false)
