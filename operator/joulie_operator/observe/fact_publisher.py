"""Publishes the facts of watched objects."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from joulie_bus.errors import BusError
from joulie_bus.events import Fact
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_operator.facts.facts_from_objects import ChangeFilter
from joulie_operator.observe.fact_messages import report_left_out, to_messages

K = TypeVar("K")
S = TypeVar("S", contravariant=True)


class Sink(Protocol[S]):
    """Receives the objects of a watcher."""

    def begin_list(self) -> None:
        """A complete list follows."""
        ...

    async def add_listed(self, objects: Sequence[S]) -> None: ...

    async def end_list(self) -> None:
        """The list is complete: objects that it did not contain are gone."""
        ...

    async def apply_events(self, events: Sequence[tuple[str, S]]) -> None: ...


class FactPublisher(Generic[K]):
    """A sink that publishes facts, in the order of `filters`; `also_to` receives all objects."""

    def __init__(
        self,
        filters: Sequence[ChangeFilter[K]],
        bus: Log,
        producer: Producer,
        also_to: Sink[K] | None = None,
    ) -> None:
        self._filters = filters
        self._bus = bus
        self._producer = producer
        self._also_to = also_to
        self._refused = Refusals("facts", "the objects are listed again and published then")

    def begin_list(self) -> None:
        for each in self._filters:
            each.begin_list()
        if self._also_to is not None:
            self._also_to.begin_list()

    async def add_listed(self, objects: Sequence[K]) -> None:
        if self._also_to is not None:
            await self._also_to.add_listed(objects)
        await self._publish([fact for obj in objects for fact in self._changes("ADDED", obj)])

    async def end_list(self) -> None:
        if self._also_to is not None:
            await self._also_to.end_list()
        await self._publish([fact for each in self._filters for fact in each.missing()])

    async def apply_events(self, events: Sequence[tuple[str, K]]) -> None:
        if self._also_to is not None:
            await self._also_to.apply_events(events)
        await self._publish([fact for kind, obj in events for fact in self._changes(kind, obj)])

    def _changes(self, kind: str, obj: K) -> list[Fact]:
        facts = []
        for each in self._filters:
            try:
                fact = each.deleted(obj) if kind == "DELETED" else each.seen(obj)
            except Exception as error:  # any: one object must not block the others
                report_left_out(type(obj).__name__, kind, f"{type(error).__name__}: {error}")
                continue
            if fact is not None:
                facts.append(fact)
        return facts

    async def _publish(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        try:
            await self._bus.publish(to_messages(self._producer, facts))
        except BaseException as error:
            for each in self._filters:
                each.mark_unknown(facts)
            if isinstance(error, BusError):
                self._refused.observe(error)
            raise
        self._refused.ended()
