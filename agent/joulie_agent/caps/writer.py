"""Carries out an order on all limits of the node, one step after the other."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from joulie_agent.caps.actuators import Actuator, NotSet
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.rules import (
    Apply,
    Forget,
    Keep,
    Refuse,
    Remembered,
    Restore,
    confirmed,
    next_step,
    obstacle,
)
from joulie_agent.sources.host import Unreadable


class Order(NamedTuple):
    """The caps that a plan orders, in microwatts for a package and milliwatts for a card; None for
    no cap. An order of a node that did not opt in has none. `card_mw` is the cap of single cards in
    place of `gpu_mw`, and `clock_pct` the clock to which all cards are locked."""

    cpu_uw: int | None = None
    gpu_mw: int | None = None
    card_mw: Mapping[str, int | None] = MappingProxyType({})
    clock_pct: int | None = None

    def of(self, kind: str, card: str = "") -> int | None:
        if kind == "gpu":
            return self.card_mw.get(card, self.gpu_mw)
        return {"cpu": self.cpu_uw, "clocks": self.clock_pct}.get(kind)

    def has(self, kind: str) -> bool:
        """Whether a cap of this kind is ordered, be it of one card."""
        of_cards = self.card_mw.values() if kind == "gpu" else ()
        return any(cap is not None for cap in (self.of(kind), *of_cards))


NOTHING = Order()


class Outcome(NamedTuple):
    """What became of one limit: its value as read back, or why it is not as ordered."""

    name: str
    kind: str
    value: int | None
    refused: str = ""
    card: str = ""


class Writer:
    """`dry_run` reports what would be done and touches neither the hardware nor the disk."""

    def __init__(self, memory: Memory, *, dry_run: bool = False) -> None:
        self._memory = memory
        self._dry_run = dry_run

    def carry_out(self, order: Order, actuators: Iterable[Actuator]) -> list[Outcome]:
        """The limits that are ordered, or were the writer's. Others are not touched, nor listed."""
        done = (self._carry_out(each, order.of(each.kind, each.card)) for each in actuators)
        return [outcome for outcome in done if outcome is not None]

    def release(self, actuators: Iterable[Actuator]) -> list[Outcome]:
        """Gives back all limits that are the writer's."""
        return self.carry_out(NOTHING, actuators)

    def obstacles(self, actuators: Iterable[Actuator]) -> dict[str, str]:
        """By each limit: why an order would not be carried out, or empty. Nothing is touched."""
        return {actuator.name: self._obstacle(actuator) for actuator in actuators}

    def _obstacle(self, actuator: Actuator) -> str:
        if self._dry_run:
            return "a dry run sets no limit"
        try:
            now = actuator.read()
        except Unreadable as error:
            return str(error)
        return actuator.problem() or obstacle(now, self._memory.get(actuator.name))

    def _carry_out(self, actuator: Actuator, wanted: int | None) -> Outcome | None:
        known = self._memory.get(actuator.name)
        if wanted is None and known is None:
            return None
        try:
            value = None if wanted is None else actuator.value_of(wanted)
            step = next_step(actuator.read(), value, known)
            return self._do(actuator, step)
        except (Unreadable, NotSet) as error:
            return Outcome(actuator.name, actuator.kind, None, str(error), actuator.card)

    def _do(
        self, actuator: Actuator, step: Apply | Keep | Restore | Forget | Refuse
    ) -> Outcome | None:
        name, kind = actuator.name, actuator.kind
        match step:
            case Apply(value) if not self._dry_run:
                self._memory.put(name, step.remembered)
                self._memory.put(name, self._set(actuator, value, step))
            case Restore(value) if not self._dry_run:
                actuator.set(value)
                self._memory.drop(name)
            case Forget() if not self._dry_run:
                self._memory.drop(name)
            case _:
                pass
        refused = step.why if isinstance(step, Refuse | Forget) else ""
        return Outcome(name, kind, actuator.read().now, refused, actuator.card)

    def _set(self, actuator: Actuator, value: int, step: Apply) -> Remembered:
        """Sets the value and reads it back; a value that the hardware did not take is undone."""
        actuator.set(value)
        if not actuator.read().shows(value):
            read_back = actuator.read().now
            actuator.set(step.remembered.before)
            raise NotSet(f"{actuator.name}: the hardware took {read_back} instead of {value}")
        return confirmed(step)
