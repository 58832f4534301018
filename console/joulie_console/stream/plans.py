"""Every plan that there still is: the newest from memory, older ones from the stream, in pages."""

from typing import NamedTuple

from joulie_audit.archive.fact_source import StreamFacts, streams_of
from joulie_bus.streams.log import Log
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream
from joulie_console.stream.event_tail import Journal
from joulie_console.views.past import Past, PlanRanges
from joulie_console.views.plan_text import PlanLine, plan_line
from joulie_projections.fold.manifest import Manifest, Range

CHUNK = 1_000  # events that are read from the stream at a time
LOOKED_AT = 20_000  # that one question may look at; it says where the next one goes on


class Page(NamedTuple):
    lines: list[PlanLine]  # newest first
    following: int | None  # before which position there may be more


class PlanPages:
    def __init__(self, bus: Log, past: Past, journal: Journal) -> None:
        self._bus = bus
        self._past = past
        self._journal = journal

    def remembered(self, before: int, node: str, limit: int) -> Page:
        """From memory alone."""
        journal = self._journal
        lines = _of(node, journal.plans_before(before)[::-1])
        if len(lines) > limit:
            return _cut(lines, limit)
        oldest = min(before, journal.first_plan)
        return Page(lines, oldest if journal.forgets_plans and oldest > 1 else None)

    async def before(self, before: int, node: str, limit: int) -> Page:
        found = self.remembered(before, node, limit)
        if found.following is None or len(found.lines) == limit:
            return found
        older = await self._older(found.following, node, limit - len(found.lines))
        return Page([*found.lines, *older.lines], older.following)

    async def _older(self, before: int, node: str, limit: int) -> Page:
        state = await self._bus.state(Stream.PLAN)
        self._journal.plans_gone = state.first - 1
        streams = await self._past.ask(streams_of)
        lines: list[PlanLine] = []
        async with StreamFacts.over(self._bus, streams) as facts:
            for _ in range(LOOKED_AT // CHUNK):
                ranges = await self._past.plans_before(before, CHUNK)
                before = ranges.mapped_to
                lines += _of(node, await _read(facts, _still_there(ranges, state)))
                if len(lines) > limit:
                    return _cut(lines, limit)
                if before <= 1 or _reaches_the_end(ranges, state):
                    return Page(lines, None)
                if ranges.events < CHUNK:
                    break  # it was a long way to so few
        return Page(lines, before)


def _of(node: str, lines: list[PlanLine]) -> list[PlanLine]:
    return [line for line in lines if node in ("", line.node)]


def _cut(lines: list[PlanLine], limit: int) -> Page:
    return Page(lines[:limit], lines[limit - 1].number)


async def _read(facts: StreamFacts, manifests: list[Manifest]) -> list[PlanLine]:
    """Read forward, as streams are; told newest first."""
    lines: list[PlanLine] = []
    for manifest in manifests:
        for at, record in enumerate(await facts.of(manifest), manifest.p_from):
            if (line := plan_line(record, at)) is not None:
                lines.append(line)
    return lines[::-1]


def _still_there(ranges: PlanRanges, state: StreamState) -> list[Manifest]:
    kept: list[Manifest] = []
    for manifest in ranges.manifests:
        (part,) = manifest.ranges
        gone = max(0, state.first - part.first)
        if part.first + gone <= part.last:
            rest = Range(part.stream, part.first + gone, part.last)
            kept.append(manifest._replace(ranges=(rest,), p_from=manifest.p_from + gone))
    return kept


def _reaches_the_end(ranges: PlanRanges, state: StreamState) -> bool:
    return bool(ranges.manifests) and ranges.manifests[0].ranges[0].first <= state.first
