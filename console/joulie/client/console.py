"""The API of a console: one method per path."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote

import msgspec

from joulie.client.connection import ConsoleConnection, decoded
from joulie.client.stream import EventStream, StreamEvent
from joulie_answers.pages import further
from joulie_answers.schema import requests as q
from joulie_answers.schema import responses as a
from joulie_answers.schema import routes
from joulie_answers.schema.routes import A, Q, Route
from joulie_bus.errors import ConsoleNotReached

TIMEOUT_S = 35.0  # an answer about the past may take the console 30 s
PATIENCE_S = 300.0  # without a console, before a stream gives up


class Page(Protocol):
    """A part of a list."""

    @property
    def next(self) -> int | None: ...


P = TypeVar("P", bound=Page)


class Connection(Protocol):
    """How a console is reached."""

    url: str

    async def json(
        self, path: str, parameters: Mapping[str, str], timeout_s: float, body: str | None, /
    ) -> bytes: ...


class ConsoleClient:
    """A console. Use it as `async with ConsoleClient(URL) as console`.

    `token_file` holds the console's token, `ca_file` the authority of its certificate if the system
    does not trust it. Without a query, a method uses the defaults of the path.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: str | Path = "",
        ca_file: str | Path = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._place = url, token_file, ca_file
        self._timeout_s = timeout_s
        self._opened: ConsoleConnection | None = None
        self._over: Connection | None = None

    @classmethod
    def over(cls, connection: Connection) -> "ConsoleClient":
        """A client that does not open its connection, and has no stream."""
        client = cls(connection.url)
        client._over = connection
        return client

    async def __aenter__(self) -> Self:
        self._opened = ConsoleConnection(*self._place)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def cluster(self, query: q.SnapshotQuery | None = None) -> a.Cluster:
        return await self._answer(routes.CLUSTER, query)

    async def power(self, query: q.Power | None = None) -> a.PowerSeries:
        return await self._answer(routes.POWER, query)

    async def map(self, query: q.SnapshotQuery | None = None) -> a.Map:
        return await self._answer(routes.MAP, query)

    async def nodes(self, query: q.Nodes | None = None) -> a.NodeList:
        return await self._answer(routes.NODES, query)

    async def node(self, name: str, query: q.Node | None = None) -> a.NodeDetail:
        return await self._answer(routes.NODE, query, name)

    async def pods(self, query: q.Pods | None = None) -> a.PodList:
        return await self._answer(routes.PODS, query)

    async def pod(self, name: str, query: q.Pod | None = None) -> a.PodDetail:
        """One pod, by uid or namespace/name, with its explanation and its decisions."""
        return await self._answer(routes.POD, query, name)

    async def pending(self, query: q.Pending | None = None) -> a.PendingList:
        return await self._answer(routes.PENDING, query)

    async def energy(self, query: q.Energy | None = None) -> a.Energy:
        return await self._answer(routes.ENERGY, query)

    async def saved(self, query: q.NoParameters | None = None) -> a.Saved:
        return await self._answer(routes.SAVED, query)

    async def workload_requests(
        self, query: q.WorkloadRequests | None = None
    ) -> a.WorkloadRequestList:
        return await self._answer(routes.WORKLOAD_REQUESTS, query)

    async def report(self, query: q.Report | None = None) -> a.Report:
        return await self._answer(routes.REPORT, query)

    async def gpus(self, query: q.Gpus | None = None) -> a.GpuList:
        return await self._answer(routes.GPUS, query)

    async def decisions(self, query: q.Decisions | None = None) -> a.DecisionList:
        return await self._answer(routes.DECISIONS, query)

    async def decision(self, entry: int, query: q.Decision | None = None) -> a.DecisionDetail:
        return await self._answer(routes.DECISION, query, str(entry))

    async def plans(self, query: q.Plans | None = None) -> a.PlanList:
        return await self._answer(routes.PLANS, query)

    async def plan(self, plan: str, query: q.NoParameters | None = None) -> a.PlanDetail:
        """One plan, by its id or by its position."""
        return await self._answer(routes.PLAN, query, plan)

    async def next_plan(self, query: q.NextPlan | None = None) -> a.NextPlan:
        return await self._answer(routes.NEXT_PLAN, query)

    async def defragment(self, query: q.Defragment | None = None) -> a.DefragmentPlan:
        return await self._answer(routes.DEFRAGMENT, query)

    async def place(self, query: q.Place) -> a.Foretold:
        """What would happen to the pods of a manifest. Nothing is written."""
        return await self._answer(routes.PLACE, query)

    async def status(self, query: q.NoParameters | None = None) -> a.Status:
        return await self._answer(routes.STATUS, query)

    async def heads(self, query: q.Heads | None = None) -> a.HeadList:
        return await self._answer(routes.HEADS, query)

    async def reach(self) -> a.Reach:
        return await self._answer(routes.REACH, None)

    async def pages(
        self, path: Callable[[Q | None], Awaitable[P]], query: Q
    ) -> AsyncGenerator[P, None]:
        """All pages of a list, such as `pages(console.pods, queries.Pods(phase="pending"))`."""
        field = "before" if "before" in query.__struct_fields__ else "offset"
        while True:
            page = await path(query)
            yield page
            if page.next is None:
                return
            following = further(page.next, getattr(query, field), field)
            query = msgspec.structs.replace(query, **{field: following})

    def stream(
        self, query: q.Stream | None = None, *, patience_s: float = PATIENCE_S
    ) -> AsyncGenerator[StreamEvent, None]:
        """Events as they happen, each one once: after a lost connection it continues where it was.

        Raises ConsoleNotReached if no console answers for `patience_s`.
        """
        found = query or q.Stream()
        parameters = parameters_of(msgspec.structs.replace(found, after=""))
        return EventStream(self._connection(), parameters, found.after, patience_s).events()

    def _connection(self) -> ConsoleConnection:
        if self._opened is None:
            raise ConsoleNotReached(
                self._place[0], "the client is not open: use `async with ConsoleClient(URL)`."
            )
        return self._opened

    async def _answer(self, route: Route[Q, A], query: Q | None, of: str = "") -> A:
        connection = self._over or self._connection()
        path = route.path.partition("{")[0] + quote(of, safe="")
        parameters = {} if query is None else parameters_of(query)
        body = parameters.pop(route.body) if route.body else None
        reply = await connection.json(path, parameters, self._timeout_s, body)
        assert route.answer is not None
        return decoded(connection.url, path, reply, msgspec.json.Decoder(route.answer))


def parameters_of(query: q.Query) -> dict[str, str]:
    """The parameters of a URL; a field that selects nothing is omitted."""
    plain: dict[str, Any] = msgspec.to_builtins(query)
    return {name: str(value) for name, value in plain.items() if value not in (None, "")}
