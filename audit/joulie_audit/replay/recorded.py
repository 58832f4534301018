"""What a log holds that can be computed again: answers, settings, plans."""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from joulie_audit.archive.fact_source import Facts, plan_facts
from joulie_audit.replay.recompute import Answer, Planned
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    FilterDecided,
    PlanMade,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
    codec,
)
from joulie_bus.events.codec import Envelope
from joulie_extender.decide.decide import weights_of
from joulie_extender.decide.scoring import Weights
from joulie_projections.decision_log.entry import about_event
from joulie_projections.history.history import NEWEST, History

T = TypeVar("T")


class Queue(Generic[T]):
    """Things in the order of the positions that they looked at."""

    def __init__(self, logged: Iterator[tuple[int, T]]) -> None:
        self._logged = logged
        self._next = next(logged, None)

    def up_to(self, position: int) -> Iterator[tuple[int, T]]:
        while self._next is not None and self._next[0] <= position:
            yield self._next
            self._next = next(self._logged, None)


class Every(NamedTuple):
    """A sample: each `step`th answer, of which `before` have been counted already."""

    step: int = 1
    before: int = 0


ALL = Every()


def seen_from(first: int) -> int:
    """The first view that belongs to a span: before the first fact there is one of nothing."""
    return first if first > 1 else 0


def answers_of(
    history: History, first: int = 1, last: int = NEWEST, every: Every = ALL
) -> Iterator[tuple[int, Answer]]:
    settings = _settings(history)
    answers = history.answers_by_view(seen_from(first), last)
    for number, entry in enumerate(answers, every.before):
        if number % every.step == 0:
            read = _read(entry.message)
            event = read and read[1]
            if read and isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
                weights = settings.get(event.basis.settings)
                misfiled = about_event(*read, "decision").differs_from(entry.about)
                yield entry.view_position, Answer(entry.pos, event, weights, misfiled)


def _settings(history: History) -> dict[str, Weights]:
    return {declared.settings: weights_of(declared) for declared in declared_in(history)}


def declared_in(history: History) -> Iterator[SettingsDeclared]:
    for entry in history.declarations():
        read = _read(entry.message)
        if read and isinstance(read[1], SettingsDeclared):
            yield read[1]


def _read(message: bytes) -> tuple[Envelope, AnyEvent] | None:
    try:
        envelope = codec.open_envelope(message, "decision")
        return envelope, codec.read(envelope, "decision")
    except Undecodable:
        return None  # `verify` names it; there is nothing to compute from it


async def plans_of(
    history: History, facts: Facts, first: int = 1, last: int = NEWEST
) -> list[Planned]:
    """Whole plans, in the order of the positions that they looked at."""
    made: dict[str, Planned] = {}
    async for found in plan_facts(history, facts, first, last):
        event = found.event
        if isinstance(event, PlanMade):
            made.setdefault(event.plan, Planned(found.position, event, []))
        elif event.plan in made:
            made[event.plan].changes.append(event)
    inside = (each for each in made.values() if each.made.view >= seen_from(first))
    return sorted(inside, key=lambda each: each.made.view)
