"""Queries of the database, off the event loop."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from threading import BoundedSemaphore
from typing import NamedTuple, TypeVar

from joulie_answers.views.decision_text import DescribedEntry, EntryRow, describe
from joulie_bus.errors import NotAnswered, QueryRefused, Undecodable
from joulie_bus.events import SettingsDeclared, codec
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.chain.head import Head
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import RECOMPUTED, EntryQuery, History, StoredEntry
from joulie_projections.twin.row_names import RowNames

log = get_logger("answers")
T = TypeVar("T")
OpenHistory = Callable[[], AbstractContextManager[History]]
MAX_QUERIES = 32  # that run or wait
DEADLINE_S = 20.0
MAX_ENTRIES_READ = 20_000  # for one query; its page says where the next one continues
NAMED_AT_ONCE = 64  # entries
MAX_NAMES = 100_000  # of rows in memory; then those of older positions are dropped
MAX_MANIFESTS = 2_000  # in memory at a time
MAX_MANIFESTS_BACK = 200_000  # manifests that one query may read to find the positions of old plans


class OpenedEntry(NamedTuple):
    """An entry, with the names of the nodes at its position."""

    stored: StoredEntry
    described: DescribedEntry
    names: RowNames


class EntryPage(NamedTuple):
    """Entries. The next page is before entry `following`; None: there are no more."""

    entries: list[DescribedEntry]
    following: int | None


class PodAnswer(NamedTuple):
    """The newest answer about a pod."""

    since: int  # nanoseconds; when the extender was first asked; 0: never
    described: DescribedEntry


class PlacedRange(NamedTuple):
    """Messages `first` to `last` of the stream of plans, and the position of the first one."""

    first: int
    last: int
    position: int


class PlacedPlans(NamedTuple):
    placed: list[PlacedRange]
    mapped_to: int


class PlanRanges(NamedTuple):
    """The newest plan events before a position: the requested number or slightly more."""

    manifests: list[Manifest]  # of those events only, oldest first
    events: int
    mapped_to: int  # the next query continues before this position


class HistoryReader:
    """Runs queries in two threads, so that a long query does not block the short ones.

    Queries beyond MAX_QUERIES are refused at once, and each one is answered or refused in time.
    """

    def __init__(self, open_history: OpenHistory, deadline_s: float = DEADLINE_S) -> None:
        self._open_history = open_history
        self._deadline_s = deadline_s
        self._places = BoundedSemaphore(MAX_QUERIES)
        self._threads = ThreadPoolExecutor(2, "history")
        self.weights: dict[str, Weights] = {}
        self._declared: dict[str, SettingsDeclared] = {}
        self._declared_to = 0  # the entry up to which these are known
        self._names = RowNames(0, 0, ())

    def close(self) -> None:
        self._threads.shutdown()

    async def run(self, query: Callable[[History], T]) -> T:
        """Runs a query in a thread. Raises Unreadable if the database does, and QueryRefused."""
        if not self._places.acquire(blocking=False):
            raise QueryRefused(f"{MAX_QUERIES} queries run or wait")
        submitted = self._threads.submit(self._run, query)
        submitted.add_done_callback(lambda _: self._places.release())
        try:
            async with asyncio.timeout(self._deadline_s):
                # Cancelling removes it from the queue; one that runs keeps its place to its end.
                return await asyncio.wrap_future(submitted)
        except TimeoutError as error:
            why = f"the query was not answered within {self._deadline_s:g} s"
            raise QueryRefused(why) from error

    def _run(self, query: Callable[[History], T]) -> T:
        with self._open_history() as history:
            return query(history)

    def _know_settings(self, history: History, last: int) -> None:
        """Reads the settings that were declared up to an entry, once."""
        if last <= self._declared_to:
            return
        for entry in history.declarations(self._declared_to):
            self._keep_settings(entry)
        self._declared_to = max(last, self._declared_to)

    def _keep_settings(self, entry: StoredEntry) -> None:
        try:
            event = codec.decoded(entry.message, "settings")
        except Undecodable:
            return  # the entry itself is shown as unreadable
        if isinstance(event, SettingsDeclared):
            self._declared.pop(event.settings, None)  # the newest is the last
            self._declared[event.settings] = event
            if weights := weights_of(event):
                self.weights[event.settings] = weights

    async def newest_after(self, pos: int) -> StoredEntry | None:
        """The newest entry, if after `pos`."""

        def query(history: History) -> StoredEntry | None:
            tip = history.tip()
            return history.entry(tip) if tip > pos else None

        return await self.run(query)

    async def entry(self, pos: int) -> OpenedEntry | None:
        def query(history: History) -> OpenedEntry | None:
            if (entry := history.entry(pos)) is None:
                return None
            [described] = self.described(history, [entry])
            return OpenedEntry(entry, described, described.names)

        return await self.run(query)

    async def entries_after(self, pos: int, limit: int) -> list[DescribedEntry]:
        def query(history: History) -> list[DescribedEntry]:
            return self.described(history, history.entries_after(pos, limit))

        return await self.run(query)

    async def newest(
        self,
        before: int,
        selection: EntryQuery,
        limit: int,
        matches: Callable[[DescribedEntry], bool],
    ) -> EntryPage:
        """`selection` filters by columns, `matches` by bodies, of MAX_ENTRIES_READ at most."""

        def query(history: History) -> EntryPage:
            entries = history.entries_before(before, selection)
            return _page(self._in_portions(history, entries), limit, matches)

        return await self.run(query)

    async def newest_answers(self, uids: Sequence[str]) -> dict[str, PodAnswer]:
        """The newest answer about each pod that has one, by uid."""

        def query(history: History) -> dict[str, PodAnswer]:
            answers = {answer.pos: answer for answer in history.newest_about(uids)}
            entries = [entry for pos in answers if (entry := history.entry(pos)) is not None]
            return {
                answers[each.brief.entry].uid: PodAnswer(answers[each.brief.entry].since, each)
                for each in self.described(history, entries)
            }

        return await self.run(query)

    def _in_portions(
        self, history: History, entries: Iterator[StoredEntry]
    ) -> Iterator[DescribedEntry]:
        """Describes an entry when it is taken: names are read for a portion at a time."""
        while some := list(itertools.islice(entries, NAMED_AT_ONCE)):
            names = self._names_for(history, some)
            self._know_settings(history, max(entry.pos for entry in some))
            yield from (self._describe(entry, names) for entry in some)

    def described(self, history: History, entries: Sequence[StoredEntry]) -> list[DescribedEntry]:
        """To be called by a query."""
        names = self._names_for(history, entries)
        self._know_settings(history, max((entry.pos for entry in entries), default=0))
        return [self._describe(entry, names) for entry in entries]

    def _names_for(self, history: History, entries: Sequence[StoredEntry]) -> RowNames:
        """The names at the positions of these entries, from memory if they are there."""
        views = [
            entry.view_position
            for entry in entries
            if entry.kind in RECOMPUTED and entry.view_position
        ]
        names = self._names
        if not views or names.covers(min(views), max(views)):
            return names
        if names.first <= min(views) and len(names) < MAX_NAMES:
            names = history.row_names_after(names)
        else:
            names = history.row_names(min(views))
        self._names = names
        return names

    async def heads(self, before: int, limit: int) -> list[Head]:
        return await self.run(lambda history: list(islice(history.heads_before(before), limit)))

    async def plan_positions(self, down_to: int) -> PlacedPlans:
        """Reads the manifests backwards, down to a sequence of the stream of plans."""
        return await self.run(lambda history: _placed_back(history, down_to))

    async def plans_before(self, position: int, most: int) -> PlanRanges:
        return await self.run(lambda history: _plans_before(history, position, most))

    async def placed_after(self, position: int) -> PlacedPlans:
        def query(history: History) -> PlacedPlans:
            placed, mapped_to = list[PlacedRange](), position
            for manifest in history.manifests(position + 1):
                placed.extend(_plan_ranges(manifest))
                mapped_to = manifest.p_to
            return PlacedPlans(placed, mapped_to)

        return await self.run(query)

    async def manifests_to(self, after: int, position: int) -> list[Manifest]:
        """The next manifests from `after` up to a position; the last one may go beyond it."""

        def query(history: History) -> list[Manifest]:
            following = itertools.islice(history.manifests(after + 1), MAX_MANIFESTS)
            return list(itertools.takewhile(lambda m: m.p_from <= position, following))

        return await self.run(query)

    async def manifest_by(self, time_ns: int) -> Manifest | None:
        return await self.run(lambda history: history.manifest_by(time_ns))

    async def first_manifest(self) -> Manifest | None:
        return await self.run(lambda history: next(history.manifests(), None))

    async def last_manifest(self) -> Manifest | None:
        return await self.run(lambda history: next(history.manifests_back(), None))

    def _describe(self, entry: StoredEntry, names: RowNames) -> DescribedEntry:
        found = describe(row_of(entry), names, self.weights)
        if found.fault is not None:
            what = "its line in lists says so; everything else is answered"
            log.error("entry_not_described", entry=entry.pos, what=what, exc_info=found.fault)
        return found

    async def newest_settings(self) -> str:
        """Those that a replica declared last; empty if there are none."""

        def query(history: History) -> str:
            self._know_settings(history, history.tip())
            return next(reversed(self._declared), "")

        return await self.run(query)

    def weights_of(self, settings: str) -> Weights:
        """Raises NotAnswered for settings of another version."""
        if (found := self.weights.get(settings)) is None:
            raise NotAnswered(410, f"{self.settings_unknown(settings)}. Nothing was computed.")
        return found

    def values_of(self, settings: str) -> dict[str, float | str | bool]:
        return self._declared[settings].values if settings in self._declared else {}

    def code_of(self, settings: str) -> str:
        return self._declared[settings].code if settings in self._declared else ""

    def settings_unknown(self, settings: str) -> str:
        """Why the weights of these settings are unknown; empty if they are known."""
        if settings in self.weights:
            return ""
        if settings not in self._declared:
            return f"the settings {settings} are not in the log"
        code = self._declared[settings].code
        return f"the settings {settings}, of {code}, have values that this version does not know"


def row_of(entry: StoredEntry) -> EntryRow:
    return EntryRow(
        entry.pos, entry.event_id, entry.pod, entry.pod_uid, entry.decided_at, bytes(entry.message)
    )


def _page(
    entries: Iterator[DescribedEntry], limit: int, matches: Callable[[DescribedEntry], bool]
) -> EntryPage:
    found: list[DescribedEntry] = []
    read = last = 0
    for entry in entries:
        if len(found) == limit or read == MAX_ENTRIES_READ:
            return EntryPage(found, last)
        read, last = read + 1, entry.brief.entry
        if matches(entry):
            found.append(entry)
    return EntryPage(found, None)


def _placed_back(history: History, down_to: int) -> PlacedPlans:
    placed, mapped_to = list[PlacedRange](), 0
    for manifest in itertools.islice(history.manifests_back(), MAX_MANIFESTS_BACK):
        mapped_to = mapped_to or manifest.p_to
        here = _plan_ranges(manifest)
        placed.extend(reversed(here))
        if any(place.first <= down_to for place in here):
            break
    return PlacedPlans(placed[::-1], mapped_to)


def _plans_before(history: History, position: int, most: int) -> PlanRanges:
    found, count, mapped_to = list[Manifest](), 0, 1
    for manifest in itertools.islice(history.manifests_back(position - 1), MAX_MANIFESTS_BACK):
        mapped_to = manifest.p_from
        here = [_truncated(place, position) for place in _plan_ranges(manifest)]
        kept = [place for place in reversed(here) if place.first <= place.last]
        found += [_with_only(manifest, place) for place in kept]
        count += sum(place.last - place.first + 1 for place in kept)
        if count >= most:
            break
    return PlanRanges(found[::-1], count, mapped_to)


def _truncated(place: PlacedRange, before: int) -> PlacedRange:
    return place._replace(last=min(place.last, place.first + before - 1 - place.position))


def _with_only(manifest: Manifest, place: PlacedRange) -> Manifest:
    """The manifest reduced to these plan events."""
    part = Range(Stream.PLAN, place.first, place.last)
    return manifest._replace(ranges=(part,), p_from=place.position)


def _plan_ranges(manifest: Manifest) -> list[PlacedRange]:
    found, position = [], manifest.p_from
    for part in manifest.ranges:
        if part.stream == Stream.PLAN:
            found.append(PlacedRange(part.first, part.last, position))
        position += part.last - part.first + 1
    return found
