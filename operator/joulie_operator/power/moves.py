"""Carries out moves: one pod after the other is evicted, and its replacement awaited.

kube-scheduler places the replacement. It cannot choose the node that the pod leaves, which is
cordoned meanwhile. The run ends at a replacement that finds no place.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused
from joulie_operator.desired.kubernetes_events import EVENTS, eviction_event
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable, object_path
from joulie_operator.power.cordons import Cordons, NodeMeta
from joulie_operator.power.evictable import LivePod
from joulie_operator.power.eviction import evict, pods_path
from joulie_operator.power.move_outcomes import (
    NOT_TRIED,
    Live,
    Ordered,
    Outcome,
    bound_to,
    is_busy,
    judged,
    refusal,
    replacements,
    siblings_query,
)

POLL_S = 1.0
WAIT_S = 120.0  # for a replacement to come, and again for its place
TRIES = 4  # of an eviction that a PodDisruptionBudget refuses
REFUSED = Backoff(5.0, 20.0)
BROKEN = (KubernetesRefused, BadName, *ApiUnreachable, *UNDECODABLE)
_read_pod = msgspec.json.Decoder(LivePod).decode


class Time(NamedTuple):
    """Tests pass other ones."""

    now_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class Mover:
    def __init__(
        self,
        api: ApiServer,
        namespaces: Mapping[str, str],
        say: Callable[[str], None],
        clocks: Time = Time(),  # noqa: B008
    ) -> None:
        """`namespaces` are those that set a class for their pods."""
        self._api, self._namespaces, self._say, self._time = api, namespaces, say, clocks
        self.cordons = Cordons(api, clocks.now_ns, clocks.sleep, say)
        self._state = ""  # of the pod in work, for a run that is interrupted

    async def carry_out(
        self, moves: Sequence[Ordered], report: Callable[[Ordered, Outcome], None]
    ) -> list[Outcome]:
        """One for each move. A cancellation ends the run as an outcome."""
        await self.cordons.remove_abandoned()
        found = dict[str, Outcome]()

        def note(move: Ordered, outcome: Outcome) -> None:
            found[move.uid] = outcome
            report(move, outcome)

        for node, group in groupby(moves, lambda move: move.node):
            if not await self._empty(node, list(group), note):
                break
        return [found.get(move.uid, NOT_TRIED) for move in moves]

    async def _empty(
        self, name: str, moves: Sequence[Ordered], note: Callable[[Ordered, Outcome], None]
    ) -> bool:
        """Moves these pods of one node; whether the run goes on."""
        left = list(moves)
        self._state = "it was not evicted"
        try:
            async with self.cordons.on(name) as node:
                while left:
                    outcome = await self._move(left[0], node)
                    note(left.pop(0), outcome)
                    if outcome.ends_the_run:
                        return False
        except BROKEN as error:
            why = str(error) or type(error).__name__
            note(left[0], Outcome("failed", why=f"{self._state}: {why}"))
            return False
        except asyncio.CancelledError:
            if left:
                note(left[0], Outcome("interrupted", why=self._state))
            return False
        return True

    async def _move(self, move: Ordered, node: NodeMeta) -> Outcome:
        self._state = "it was not evicted"
        path = object_path(pods_path(move.namespace), move.name)
        found = await self._api.get(path)
        pod = _read_pod(found) if found else None
        live = judged(pod, move.uid, self._namespaces.get(move.namespace))
        if isinstance(live, Outcome):
            return live
        known = frozenset(each.metadata.uid or "" for each in await self._siblings(live))
        if refused := await self._evicted(live):
            return refused
        self._state = "it was evicted, and its replacement was not awaited"
        await self._explain(move, node)
        return await self._replaced(live, known)

    async def _evicted(self, live: Live) -> Outcome | None:
        """None if it was; else why not."""
        for number in range(1, TRIES + 1):
            await self.cordons.renew()
            self._state = "whether it was evicted is not known"
            try:
                await evict(self._api, live.pod)
                return None
            except KubernetesRefused as error:
                if not is_busy(error.code) or number == TRIES:
                    return refusal(error.code, str(error))
                self._state = "it was not evicted"
                await self._time.sleep(REFUSED.after(number))
        raise AssertionError

    async def _siblings(self, live: Live) -> list[LivePod]:
        path, query = pods_path(live.pod.metadata.namespace or ""), siblings_query(live.pod)
        pages = [page async for page in self._api.pages(path, query)]
        return [_read_pod(item) for page in pages for item in page.items]

    async def _replaced(self, live: Live, known: frozenset[str]) -> Outcome:
        """Some controllers replace the pod when it has ended, for which it may take its time."""
        grace_s = live.pod.spec.termination_grace_period_seconds or 0
        deadline, has_come = self._time.monotonic() + grace_s + WAIT_S, False
        found = list[LivePod]()
        while True:
            with contextlib.suppress(*ApiUnreachable):  # until the deadline
                await self.cordons.renew()
                found = replacements(live, known, await self._siblings(live))
            if node := bound_to(found):
                return Outcome("moved", node)
            now = self._time.monotonic()
            if found and not has_come:
                deadline, has_come = now + WAIT_S, True
            if now >= deadline:
                return _without_place(found)
            await self._time.sleep(POLL_S)

    async def _explain(self, move: Ordered, node: NodeMeta) -> None:
        event = eviction_event(node.name, node.uid, move.note, self._time.now_ns())
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *ApiUnreachable) as error:
            self._say(f"no Event about {move.namespace}/{move.name} was created: {error}")


def _without_place(found: Sequence[LivePod]) -> Outcome:
    if not found:
        return Outcome("lost", why=f"no new pod of its controller came within {WAIT_S:g} s")
    return Outcome("waiting", why=f"{found[0].metadata.name} has no place after {WAIT_S:g} s")
