"""One operator at a time: a Kubernetes Lease, held by whoever renews it.

The stream of plans is fenced by compare-and-set anyway; the lease keeps a second operator from
doing everything twice. Only durations are measured, each on one machine's own clock: what two
machines think of the time of day does not matter.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from joulie_bus.errors import KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.cluster_settings import LeaseSettings
from joulie_operator.kube.api_client import CONFLICT, ApiServer, Unanswered
from joulie_operator.kube.custom_resources import ObjectMeta
from joulie_operator.kube.timestamps import rfc3339_micro

NAME = "joulie-operator"
log = get_logger("lease")
Work = Callable[[], Coroutine[Any, Any, None]]
_stopped = metrics.PLANS_STOPPED.labels(reason="lease")


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as the API server has it."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


_read = msgspec.json.Decoder(Held).decode


class Lease:
    def __init__(self, api: ApiServer, settings: LeaseSettings, identity: str) -> None:
        self._api = api
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._namespace = settings.namespace
        self._duration_s = settings.duration_s
        self._identity = identity
        self._seen: Held | None = None
        self._seen_at = 0.0
        self._unknown = ""  # why nobody can tell who leads

    async def lead(self, work: Work) -> None:
        """For ever: waits for the lease, does `work` while it is held, begins again when it is not.

        What `work` raises ends it, and the lease is given back.
        """
        while True:
            renewed = await self._acquire()
            _stopped.set(0)
            metrics.LEADING.set(1)
            log.info("leading", who=self._identity)
            working = asyncio.create_task(work(), name="leading")
            try:
                await self._keep(working, renewed)
            finally:
                metrics.LEADING.set(0)
                await _ended(working)
                await self._release()
            if not working.cancelled():
                working.result()
                return
            why = self._unknown or "somebody else holds it"
            what = "plans stop until it is held again"
            log.warning("lease_lost", who=self._identity, why=why, what=what)

    async def _acquire(self) -> float:
        """When it was requested, by the monotonic clock. A standby that sees another one lead has
        not stopped; one that cannot reach the API server has.
        """
        while True:
            asked = time.monotonic()
            if await self._tried(self._duration_s / 3):
                return asked
            _stopped.set(bool(self._unknown))
            await asyncio.sleep(self._duration_s / 5 * random.uniform(0.8, 1.2))

    async def _keep(self, working: asyncio.Task[None], renewed: float) -> None:
        """Until the work ends, or until it must: well before another one may begin.

        The end is counted from the last renewal that succeeded. A call that hangs is given up
        there, whatever patience it would have otherwise.
        """
        held_s = self._duration_s * 2 / 3
        while (left := renewed + held_s - time.monotonic()) > 0:
            await asyncio.wait([working], timeout=min(left, self._duration_s / 5))
            asked = time.monotonic()
            left = renewed + held_s - asked
            if working.done() or left <= 0:
                return
            if await self._tried(min(left, self._duration_s / 3)):
                renewed = asked  # the others count from when they see it, which is later
            elif self._is_anothers():
                return

    async def _tried(self, patience_s: float) -> bool:
        """Are we the holder now? False also if nobody could tell, which is told once."""
        before, self._unknown = self._unknown, ""
        try:
            async with asyncio.timeout(patience_s):
                return await self._try()
        except KubernetesRefused as error:
            if error.code != CONFLICT:  # that one is how it is lost
                self._unknown = f"refused: {error}"
        except (*Unanswered, msgspec.DecodeError) as error:
            self._unknown = str(error) or type(error).__name__
        if self._unknown not in ("", before):
            log.warning("lease_unknown", error=self._unknown)
        return False

    async def _try(self) -> bool:
        found = await self._api.get(f"{self._leases}/{NAME}")
        if found is None:
            self._saw(_read(await self._api.create(self._leases, self._claim(None))))
            return True
        self._saw(_read(found))
        if not self._is_free():
            return False
        answer = await self._api.replace(f"{self._leases}/{NAME}", self._claim(self._seen))
        self._saw(_read(answer))
        return True

    def _saw(self, lease: Held) -> None:
        """A holder that renews is seen to: his time begins when we see it, by our own clock."""
        if self._seen is None or self._seen.metadata != lease.metadata:
            self._seen_at = time.monotonic()
        self._seen = lease

    def _is_free(self) -> bool:
        assert self._seen is not None
        spec = self._seen.spec
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return True
        patience_s = max(self._duration_s, float(spec.lease_duration_seconds or 0))
        return time.monotonic() - self._seen_at > patience_s

    def _is_anothers(self) -> bool:
        holder = self._seen.spec.holder_identity if self._seen else None
        return holder is not None and holder != self._identity

    def _claim(self, before: Held | None, *, release: bool = False) -> dict[str, Any]:
        """`before` by its version: if somebody else wrote since, the server says no."""
        now = rfc3339_micro(time.time_ns())
        spec = before.spec if before else LeaseSpec()
        is_ours = spec.holder_identity == self._identity
        claimed = LeaseSpec(
            holder_identity="" if release else self._identity,
            lease_duration_seconds=max(1, round(self._duration_s)),
            acquire_time=spec.acquire_time if is_ours else now,
            renew_time=now,
            lease_transitions=(spec.lease_transitions or 0) + (0 if is_ours or not before else 1),
        )
        meta = {"name": NAME, "namespace": self._namespace}
        if before is not None:
            meta["resourceVersion"] = before.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": msgspec.to_builtins(claimed),
        }

    async def _release(self) -> None:
        """So that the next one need not wait. If it fails, he waits."""
        if self._seen is None or self._is_anothers():
            return
        body = self._claim(self._seen, release=True)
        try:
            async with asyncio.timeout(1):
                await self._api.replace(f"{self._leases}/{NAME}", body)
        except (KubernetesRefused, *Unanswered) as error:
            log.info("lease_not_given_back", error=str(error) or type(error).__name__)
        self._seen = None


async def _ended(task: asyncio.Task[None]) -> None:
    """It has let go of everything when this returns."""
    task.cancel()
    await asyncio.wait([task])
