"""Who makes a Binding, as `bind` sees it: Kubernetes, or a simulator that has none. Values only."""

from typing import Literal, NamedTuple, Protocol

from joulie_bus.events import PodAsk

State = Literal["waiting", "bound", "finished", "gone"]
Fate = Literal["made", "conflict", "gone", "refused", "unclear"]


class Order(NamedTuple):
    """One Binding: the pod by its uid, because its name may be another's by now."""

    namespace: str
    name: str
    uid: str
    node: str
    cards: tuple[str, ...] = ()


class Told(NamedTuple):
    """What became of an order. `unclear`: it may have been carried out or not."""

    fate: Fate
    why: str = ""


class Found(NamedTuple):
    """A pod as it is now. One of the same name with another uid is another pod: this is gone."""

    state: State
    node: str = ""
    cards: tuple[str, ...] = ()  # that its Binding named
    ask: PodAsk | None = None


class CannotTell(Exception):
    """Nobody answers the question how a pod is: nothing may be concluded."""


class Binder(Protocol):
    async def bind(self, order: Order) -> Told: ...

    async def find(self, namespace: str, name: str, uid: str) -> Found:
        """Raises CannotTell."""
        ...
