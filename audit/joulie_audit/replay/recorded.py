"""Reads from a log what can be recomputed: decisions, settings, plans."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from joulie_audit.archive.fact_source import FactSource, plan_facts
from joulie_audit.recompute.answers import RecordedAnswer, RecordedPlan, RecordedResize
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    FilterDecided,
    PlanMade,
    PodResize,
    PreemptDecided,
    PrioritizeDecided,
    ResizeOrdered,
    SettingsDeclared,
    codec,
)
from joulie_bus.events.codec import Envelope
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.chain.entry import fields_of_event
from joulie_projections.history.history import NEWEST, History, StoredEntry

T = TypeVar("T")


class PositionQueue(Generic[T]):
    """Items in the order of their view positions."""

    def __init__(self, recorded: Iterator[tuple[int, T]]) -> None:
        self._recorded = recorded
        self._next = next(recorded, None)

    def up_to(self, position: int) -> Iterator[tuple[int, T]]:
        while self._next is not None and self._next[0] <= position:
            yield self._next
            self._next = next(self._recorded, None)


class Sampling(NamedTuple):
    """Takes two of each `2 * step` decisions, of which `skipped` have been counted already: a pod
    mostly has two in a row, and one of two would be filters alone."""

    step: int = 1
    skipped: int = 0


EVERY_ANSWER = Sampling()


def first_view(first: int) -> int:
    """The first view of a span: the first span includes the empty view before any fact."""
    return first if first > 1 else 0


def answers_of(
    history: History, first: int = 1, last: int = NEWEST, sampling: Sampling = EVERY_ANSWER
) -> Iterator[tuple[int, RecordedAnswer]]:
    settings = _settings(history)
    answers = history.answers_by_view(first_view(first), last)
    for number, entry in enumerate(answers, sampling.skipped):
        if number // 2 % sampling.step == 0:
            read = _read(entry.message)
            event = read and read[1]
            if read and isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
                weights = settings.get(event.basis.settings)
                header_mismatch = fields_of_event(*read, "decision").differs_from(entry.fields)
                yield (
                    entry.view_position,
                    RecordedAnswer(entry.pos, event, weights, header_mismatch),
                )


def _settings(history: History) -> dict[str, Weights]:
    declared = ((each.settings, weights_of(each)) for each in declared_in(history))
    return {settings: weights for settings, weights in declared if weights is not None}


def declared_in(history: History, entries: int = NEWEST) -> Iterator[SettingsDeclared]:
    """Up to this entry."""
    wanted = (entry for entry in history.declarations() if entry.pos <= entries)
    return (each for each in events_of(wanted) if isinstance(each, SettingsDeclared))


def events_of(entries: Iterable[StoredEntry]) -> Iterator[AnyEvent]:
    """Those that can be read."""
    for entry in entries:
        if (read := _read(entry.message)) is not None:
            yield read[1]


def _read(message: bytes) -> tuple[Envelope, AnyEvent] | None:
    try:
        envelope = codec.open_envelope(message, "decision")
        return envelope, codec.read(envelope, "decision")
    except Undecodable:
        return None  # `verify` reports it; there is nothing to recompute


class PlanLog(NamedTuple):
    """What the stream of plans holds that is computed again."""

    plans: Sequence[RecordedPlan]  # whole ones, in the order of their view positions
    resizes: Sequence[RecordedResize]  # by their positions


async def plans_of(
    history: History, facts: FactSource, first: int = 1, last: int = NEWEST
) -> PlanLog:
    plans: dict[str, RecordedPlan] = {}
    resizes: list[RecordedResize] = []
    async for found in plan_facts(history, facts, first, last):
        event = found.event
        if isinstance(event, PlanMade):
            plans.setdefault(event.plan, RecordedPlan(found.position, event, []))
        elif isinstance(event, PodResize):
            if isinstance(event, ResizeOrdered):
                resizes.append(RecordedResize(found.position, event))
        elif event.plan in plans:
            plans[event.plan].changes.append(event)
    inside = (each for each in plans.values() if each.made.view >= first_view(first))
    return PlanLog(sorted(inside, key=lambda each: each.made.view), resizes)
