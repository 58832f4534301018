"""What the database holds, for one question at a time, off the event loop."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

from joulie_bus.errors import Undecodable
from joulie_bus.events import SettingsDeclared, codec
from joulie_bus.streams.subjects import Stream
from joulie_console.views.decision_text import Line, Names, Told, tell
from joulie_extender.decide import weights_of
from joulie_extender.scoring import Weights
from joulie_projections.decision_log.heads import Head
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import History, Logged, Wanted

T = TypeVar("T")
Opening = Callable[[], AbstractContextManager[History]]
LOOKED_AT = 20_000  # entries that one question may look at; it says where the next one goes on
MANIFESTS = 2_000  # held in memory at a time
MAPPED_BACK = 200_000  # manifests looked through for the positions of old plans


class Found(NamedTuple):
    """Entries, and before which one the next question goes on; None if there are no more."""

    entries: list[Logged]
    following: int | None


class Placed(NamedTuple):
    """Where messages `first` to `last` of the stream of plans stand in the order of the facts."""

    first: int
    last: int
    position: int


class Plans(NamedTuple):
    placed: list[Placed]
    mapped_to: int


class PlanRanges(NamedTuple):
    """The newest plan events before a position, so many or a few more."""

    manifests: list[Manifest]  # of those events alone, oldest first
    events: int
    mapped_to: int  # the next question goes on before this position


class Past:
    """Reads for whoever asks; two at a time, so that one long question stops no short one."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._thread = ThreadPoolExecutor(2, "past")
        self.weights: dict[str, Weights] = {}
        self._declared: dict[str, SettingsDeclared] = {}

    def close(self) -> None:
        self._thread.shutdown()

    async def ask(self, question: Callable[[History], T]) -> T:
        """Raises Unreadable if the database does."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._answer, question)

    def _answer(self, question: Callable[[History], T]) -> T:
        with self._opening() as history:
            return question(history)

    def remember(self, entry: Logged) -> None:
        if entry.kind != SettingsDeclared.TYPE:
            return
        try:
            event = codec.read(codec.open_envelope(entry.message, "settings"), "settings")
        except Undecodable:
            return  # shown as what it is where the log is shown
        if isinstance(event, SettingsDeclared):
            self._declared[event.settings] = event
            self.weights[event.settings] = weights_of(event)

    async def newest_after(self, pos: int) -> Logged | None:
        """Which settings were declared on the way is remembered."""

        def question(history: History) -> tuple[Logged | None, list[Logged]]:
            if (tip := history.tip()) <= pos:
                return None, []
            return history.entry(tip), list(history.declarations(pos))

        newest, declared = await self.ask(question)
        for entry in declared:
            self.remember(entry)
        return newest

    async def entry(self, pos: int) -> Logged | None:
        return await self.ask(lambda history: history.entry(pos))

    async def entries_after(self, pos: int, limit: int) -> list[Logged]:
        return await self.ask(lambda history: history.entries_after(pos, limit))

    async def newest(
        self, before: int, wanted: Wanted, limit: int, fits: Callable[[Logged], bool]
    ) -> Found:
        """What no column tells (`fits`) is looked up in the bodies, of so many at most."""

        def question(history: History) -> Found:
            return _page(history.entries_before(before, wanted), limit, fits)

        return await self.ask(question)

    async def heads(self, before: int, limit: int) -> list[Head]:
        return await self.ask(lambda history: history.heads_before(before, limit))

    async def placed_plans(self, down_to: int) -> Plans:
        """Newest positions first are what is wanted, so the manifests are read backwards."""
        return await self.ask(lambda history: _placed_back(history, down_to))

    async def plans_before(self, position: int, most: int) -> PlanRanges:
        return await self.ask(lambda history: _plans_before(history, position, most))

    async def placed_after(self, position: int) -> Plans:
        def question(history: History) -> Plans:
            placed, mapped_to = list[Placed](), position
            for manifest in history.manifests(position + 1):
                placed.extend(_placed(manifest))
                mapped_to = manifest.p_to
            return Plans(placed, mapped_to)

        return await self.ask(question)

    async def manifests_to(self, after: int, position: int) -> list[Manifest]:
        """Some that lead from `after` to a position, the last one perhaps beyond it."""

        def question(history: History) -> list[Manifest]:
            following = itertools.islice(history.manifests(after + 1), MANIFESTS)
            return list(itertools.takewhile(lambda m: m.p_from <= position, following))

        return await self.ask(question)

    async def manifest_by(self, time_ns: int) -> Manifest | None:
        return await self.ask(lambda history: history.manifest_by(time_ns))

    async def first_manifest(self) -> Manifest | None:
        return await self.ask(lambda history: next(history.manifests(), None))

    async def last_manifest(self) -> Manifest | None:
        return await self.ask(lambda history: next(history.manifests_back(), None))

    def told(self, entry: Logged, names: Names) -> Told:
        return tell(line_of(entry), names, self.weights)

    def values_of(self, settings: str) -> dict[str, float | str | bool]:
        return self._declared[settings].values if settings in self._declared else {}

    def code_of(self, settings: str) -> str:
        return self._declared[settings].code if settings in self._declared else ""

    def weights_by(self, settings: str) -> Weights:
        return self.weights.get(settings, Weights())


def line_of(entry: Logged) -> Line:
    return Line(
        entry.pos, entry.event_id, entry.pod, entry.pod_uid, entry.decided_at, bytes(entry.message)
    )


def _page(entries: Iterator[Logged], limit: int, fits: Callable[[Logged], bool]) -> Found:
    found: list[Logged] = []
    looked = last = 0
    for entry in entries:
        if len(found) == limit or looked == LOOKED_AT:
            return Found(found, last)
        looked, last = looked + 1, entry.pos
        if fits(entry):
            found.append(entry)
    return Found(found, None)


def _placed_back(history: History, down_to: int) -> Plans:
    placed, mapped_to = list[Placed](), 0
    for manifest in itertools.islice(history.manifests_back(), MAPPED_BACK):
        mapped_to = mapped_to or manifest.p_to
        here = _placed(manifest)
        placed.extend(reversed(here))
        if any(place.first <= down_to for place in here):
            break
    return Plans(placed[::-1], mapped_to)


def _plans_before(history: History, position: int, most: int) -> PlanRanges:
    found, count, mapped_to = list[Manifest](), 0, 1
    for manifest in itertools.islice(history.manifests_back(position - 1), MAPPED_BACK):
        mapped_to = manifest.p_from
        here = [_cut(place, position) for place in _placed(manifest)]
        kept = [place for place in reversed(here) if place.first <= place.last]
        found += [_alone(manifest, place) for place in kept]
        count += sum(place.last - place.first + 1 for place in kept)
        if count >= most:
            break
    return PlanRanges(found[::-1], count, mapped_to)


def _cut(place: Placed, before: int) -> Placed:
    return place._replace(last=min(place.last, place.first + before - 1 - place.position))


def _alone(manifest: Manifest, place: Placed) -> Manifest:
    """As if the batch had been made of these plan events only."""
    part = Range(Stream.PLAN, place.first, place.last)
    return manifest._replace(ranges=(part,), p_from=place.position)


def _placed(manifest: Manifest) -> list[Placed]:
    found, position = [], manifest.p_from
    for part in manifest.ranges:
        if part.stream == Stream.PLAN:
            found.append(Placed(part.first, part.last, position))
        position += part.last - part.first + 1
    return found
