"""All retained plans in pages: the newest from memory, older ones from the stream."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from joulie_answers.readers.facts import OpenFacts
from joulie_answers.readers.history import HistoryReader, PlanRanges
from joulie_answers.schema.responses import Transition
from joulie_answers.views.plan_text import PlanLine, changed_nothing, plan_event, plan_line
from joulie_audit.archive.fact_source import FactSource
from joulie_bus.events import PlanMade
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import NEWEST

CHUNK = 1_000  # events that are read from the stream at a time
MAX_EVENTS_READ = 20_000  # for one query; its page says where the next one continues


class Page(NamedTuple):
    lines: list[PlanLine]  # newest first
    following: int | None  # the next page is before this position; None: there are no more


class WholePlan(NamedTuple):
    position: int
    at: int
    made: PlanMade
    transitions: list[Transition]


class RecentPlans(Protocol):
    """The newest plans, in memory."""

    plans_gone: int  # events that have left the stream

    @property
    def first_plan(self) -> int: ...
    @property
    def has_dropped_plans(self) -> bool: ...
    def plans_before(self, position: int, /) -> Sequence[PlanLine]: ...  # oldest first


class PlanPages:
    def __init__(self, open_facts: OpenFacts, history: HistoryReader, tail: RecentPlans) -> None:
        self._open_facts = open_facts
        self._history = history
        self._tail = tail

    @property
    def gone(self) -> int:
        """Events that have left the stream."""
        return self._tail.plans_gone

    @property
    def first_in_memory(self) -> int:
        return self._tail.first_plan

    def from_memory(self, before: int, node: str, limit: int, changed: bool = False) -> Page:
        """From memory only."""
        tail = self._tail
        lines = _about(node, changed, tail.plans_before(before)[::-1])
        if len(lines) > limit:
            return _limited(lines, limit)
        oldest = min(before, tail.first_plan)
        return Page(lines, oldest if tail.has_dropped_plans and oldest > 1 else None)

    async def before(self, before: int, node: str, limit: int, changed: bool = False) -> Page:
        found = self.from_memory(before, node, limit, changed)
        if found.following is None or len(found.lines) == limit:
            return found
        older = await self._older(found.following, node, limit - len(found.lines), changed)
        return Page([*found.lines, *older.lines], older.following)

    async def whole(self, which: str, most: int) -> WholePlan | None:
        """A plan by its id or its position, among the newest `most` events of plans. Its head
        comes before its changes."""
        before, changes = NEWEST, defaultdict[str, list[Transition]](list)
        async with self._open_facts() as facts:
            first = await facts.first_of(Stream.PLAN)
            while before > 1 and most > 0:
                ranges = await self._history.plans_before(before, CHUNK)
                before, most = ranges.mapped_to, most - max(1, ranges.events)
                for position, record in await _records(facts, _retained(ranges, first)):
                    event = plan_event(record)
                    if isinstance(event, PlanMade) and which in (event.plan, str(position)):
                        return WholePlan(position, record.at, event, changes[event.plan][::-1])
                    if (line := plan_line(record, position)) is not None:
                        _add_change(changes, line)
                if _reaches_first_event(ranges, first):
                    return None
        return None

    async def _older(self, before: int, node: str, limit: int, changed: bool = False) -> Page:
        lines: list[PlanLine] = []
        async with self._open_facts() as facts:
            first = await facts.first_of(Stream.PLAN)
            self._tail.plans_gone = max(0, first - 1)  # 0: nothing was published yet
            for _ in range(MAX_EVENTS_READ // CHUNK):
                ranges = await self._history.plans_before(before, CHUNK)
                before = ranges.mapped_to
                lines += _about(node, changed, await _read(facts, _retained(ranges, first)))
                if len(lines) > limit:
                    return _limited(lines, limit)
                if before <= 1 or _reaches_first_event(ranges, first):
                    return Page(lines, None)
                if ranges.events < CHUNK:
                    break  # the search reached its limit of manifests
        return Page(lines, before)


def _about(node: str, changed: bool, lines: Sequence[PlanLine]) -> list[PlanLine]:
    return [
        line
        for line in lines
        if node in ("", line.node) and not (changed and changed_nothing(line))
    ]


def _limited(lines: list[PlanLine], limit: int, changed: bool = False) -> Page:
    return Page(lines[:limit], lines[limit - 1].number)


async def _read(facts: FactSource, manifests: list[Manifest]) -> list[PlanLine]:
    """Newest first."""
    found = [plan_line(record, at) for at, record in await _records(facts, manifests)]
    return [line for line in found if line is not None]


async def _records(facts: FactSource, manifests: list[Manifest]) -> list[tuple[int, Record]]:
    """Newest first, with their positions; the stream itself is read forward."""
    found = list[tuple[int, Record]]()
    for manifest in manifests:
        found += enumerate(await facts.of(manifest), manifest.p_from)
    return found[::-1]


def _add_change(changes: dict[str, list[Transition]], line: PlanLine) -> None:
    if isinstance(line.entry.transition, Transition):
        changes[line.entry.transition.plan].append(line.entry.transition)


def _retained(ranges: PlanRanges, first: int) -> list[Manifest]:
    kept: list[Manifest] = []
    for manifest in ranges.manifests:
        (part,) = manifest.ranges
        gone = max(0, first - part.first)
        if part.first + gone <= part.last:
            rest = Range(part.stream, part.first + gone, part.last)
            kept.append(manifest._replace(ranges=(rest,), p_from=manifest.p_from + gone))
    return kept


def _reaches_first_event(ranges: PlanRanges, first: int) -> bool:
    return bool(ranges.manifests) and ranges.manifests[0].ranges[0].first <= first
