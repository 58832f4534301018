"""What watchers see becomes facts, and facts go to the log."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from joulie_bus.errors import BusError
from joulie_bus.events import Fact
from joulie_bus.streams.log import Log
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.refusals import Refusals
from joulie_operator.observe.fact_messages import left_out, stamped
from joulie_operator.observe.facts_from_objects import Told

K = TypeVar("K")
S = TypeVar("S", contravariant=True)


class Sink(Protocol[S]):
    """Where what was seen goes."""

    def begin(self) -> None:
        """A whole list follows."""
        ...

    async def listed(self, things: Sequence[S]) -> None: ...

    async def whole(self) -> None:
        """The list was complete: what it did not show is gone."""
        ...

    async def happened(self, events: Sequence[tuple[str, S]]) -> None: ...


class Facts(Generic[K]):
    """One object may be several facts, in the order of `told`; `beside` hears of all, too."""

    def __init__(
        self, told: Sequence[Told[K]], bus: Log, producer: Producer, beside: Sink[K] | None = None
    ) -> None:
        self._told = told
        self._bus = bus
        self._producer = producer
        self._beside = beside
        self._refused = Refusals("facts", "the objects are listed again, and told then")

    def begin(self) -> None:
        for told in self._told:
            told.begin()
        if self._beside is not None:
            self._beside.begin()

    async def listed(self, things: Sequence[K]) -> None:
        if self._beside is not None:
            await self._beside.listed(things)
        await self._tell([fact for thing in things for fact in self._news("ADDED", thing)])

    async def whole(self) -> None:
        if self._beside is not None:
            await self._beside.whole()
        await self._tell([fact for told in self._told for fact in told.missing()])

    async def happened(self, events: Sequence[tuple[str, K]]) -> None:
        if self._beside is not None:
            await self._beside.happened(events)
        await self._tell([fact for kind, thing in events for fact in self._news(kind, thing)])

    def _news(self, kind: str, thing: K) -> list[Fact]:
        facts = []
        for told in self._told:
            try:
                fact = told.deleted(thing) if kind == "DELETED" else told.seen(thing)
            except Exception as error:  # any: one object must not keep the others from being seen
                left_out(type(thing).__name__, kind, f"{type(error).__name__}: {error}")
                continue
            if fact is not None:
                facts.append(fact)
        return facts

    async def _tell(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        try:
            await self._bus.publish(stamped(self._producer, facts))
        except BaseException as error:
            for told in self._told:
                told.doubt(facts)
            if isinstance(error, BusError):
                self._refused.saw(error)
            raise
        self._refused.ended()
