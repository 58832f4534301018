"""The interface of binders: Kubernetes, or a simulation without one. Values only."""

from typing import Literal, NamedTuple, Protocol

from joulie_bus.events import PodAsk

BindingState = Literal["waiting", "bound", "finished", "gone"]
BindStatus = Literal["made", "conflict", "gone", "refused", "unclear"]


class BindRequest(NamedTuple):
    """One Binding. The pod is given by UID, because its name may belong to another pod by now."""

    namespace: str
    name: str
    uid: str
    node: str
    cards: tuple[str, ...] = ()


class BindResult(NamedTuple):
    """The result of a request. `unclear`: it may have been carried out or not."""

    status: BindStatus
    why: str = ""


class PodLookup(NamedTuple):
    """The current state of a pod. A pod of the same name with another UID counts as `gone`."""

    state: BindingState
    node: str = ""
    cards: tuple[str, ...] = ()  # that its Binding named
    ask: PodAsk | None = None


class LookupFailed(Exception):
    """The state of the pod is unknown: nothing may be concluded."""


class Binder(Protocol):
    async def bind(self, request: BindRequest) -> BindResult: ...

    async def find(self, namespace: str, name: str, uid: str) -> PodLookup:
        """Raises LookupFailed."""
        ...
