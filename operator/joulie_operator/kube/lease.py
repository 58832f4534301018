"""Leader election by a Kubernetes Lease: one operator works at a time.

The stream of plans is fenced by compare-and-set anyway; the Lease keeps a second operator from
doing the same work. Only durations are measured, each on the monotonic clock of one machine, so
that clock skew between machines does not matter.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import KubernetesRefused
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.cluster_settings import LeaseSettings
from joulie_operator.kube.api_client import CONFLICT, ApiServer, ApiUnreachable
from joulie_operator.resources.custom_resources import ObjectMeta
from joulie_operator.resources.rights import LEASE
from joulie_operator.resources.timestamps import rfc3339_micro

log = get_logger("lease")
Work = Callable[[], Coroutine[Any, Any, None]]
RELEASE_S = 4.0  # well within the time that a stop gives to a process
_stopped = metrics.PLANS_STOPPED.labels(reason="lease")


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease object of the API server."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


def lease_path(namespace: str, name: str = "") -> str:
    """The path of a Lease; without a name, of all in the namespace."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


_read = msgspec.json.Decoder(LeaseObject).decode


class Lease:
    """Acquires, renews and releases the Lease of the operator."""

    def __init__(self, api: ApiServer, settings: LeaseSettings, identity: str) -> None:
        self._api = api
        self._leases = lease_path(settings.namespace)
        self._namespace = settings.namespace
        self._duration_s = settings.duration_s
        self._identity = identity
        self._seen: LeaseObject | None = None
        self._seen_at = 0.0
        self._failure = ""  # why the holder is unknown

    async def lead(self, work: Work) -> None:
        """Acquires the Lease, runs `work` while it is held, and starts over when it is lost.

        Releases the Lease and returns, or raises, when `work` does.
        """
        metrics.LEADING.set(0)
        while True:
            renewed_at = await self._acquire()
            _stopped.set(0)
            metrics.LEADING.set(1)
            log.info("leading", identity=self._identity)
            working = asyncio.create_task(work(), name="leading")
            try:
                await self._renew(working, renewed_at)
            finally:
                metrics.LEADING.set(0)
                await _cancelled(working)
                await self._release()
            if not working.cancelled():
                working.result()
                return
            why = self._failure or "another operator holds it"
            what = "plans stop until it is acquired again"
            log.warning("lease_lost", identity=self._identity, why=why, what=what)

    async def _acquire(self) -> float:
        """Returns the monotonic time of the successful request. A standby behind a healthy leader
        does not report a stop; one that cannot reach the API server does.
        """
        while True:
            requested_at = time.monotonic()
            if await self._attempt(self._duration_s / 3):
                return requested_at
            _stopped.set(bool(self._failure))
            await asyncio.sleep(self._duration_s / 5 * random.uniform(0.8, 1.2))

    async def _renew(self, working: asyncio.Task[None], renewed_at: float) -> None:
        """Renews until the work ends or the Lease is lost, well before another operator may start.

        The deadline counts from the last successful renewal, and also cuts off a hanging call.
        """
        held_s = self._duration_s * 2 / 3
        while (left := renewed_at + held_s - time.monotonic()) > 0:
            await asyncio.wait([working], timeout=min(left, self._duration_s / 5))
            requested_at = time.monotonic()
            left = renewed_at + held_s - requested_at
            if working.done():
                return
            if left <= 0:
                self._failure = f"not renewed for {held_s:g} s: this process did not get to it"
                return
            if await self._attempt(min(left, self._duration_s / 3)):
                renewed_at = (
                    requested_at  # other operators count from when they see it, which is later
                )
            elif self._is_held_by_another():
                return

    async def _attempt(self, timeout_s: float) -> bool:
        """Whether this operator holds the Lease now. False on errors, too, logged once each."""
        before, self._failure = self._failure, ""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._try()
        except KubernetesRefused as error:
            if error.code != CONFLICT:  # a conflict means another operator wrote
                self._failure = f"refused: {error}"
        except (*ApiUnreachable, *UNDECODABLE) as error:
            self._failure = str(error) or type(error).__name__
        if self._failure not in ("", before):
            log.warning("lease_unknown", error=self._failure)
        return False

    async def _try(self) -> bool:
        found = await self._api.get(f"{self._leases}/{LEASE}")
        if found is None:
            self._observe(_read(await self._api.create(self._leases, self._claim(None))))
            return True
        self._observe(_read(found))
        if not self._is_free():
            return False
        answer = await self._api.replace(f"{self._leases}/{LEASE}", self._claim(self._seen))
        self._observe(_read(answer))
        return True

    def _observe(self, lease: LeaseObject) -> None:
        """A changed Lease counts from when this process reads it, by its own clock."""
        if self._seen is None or self._seen.metadata != lease.metadata:
            self._seen_at = time.monotonic()
        self._seen = lease

    def _is_free(self) -> bool:
        assert self._seen is not None
        spec = self._seen.spec
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return True
        timeout_s = max(self._duration_s, float(spec.lease_duration_seconds or 0))
        return time.monotonic() - self._seen_at > timeout_s

    def _is_held_by_another(self) -> bool:
        holder = self._seen.spec.holder_identity if self._seen else None
        return holder is not None and holder != self._identity

    def _claim(self, before: LeaseObject | None, *, release: bool = False) -> dict[str, Any]:
        """With the version of `before`: the server refuses if the Lease has changed since."""
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
        meta = {"name": LEASE, "namespace": self._namespace}
        if before is not None:
            meta["resourceVersion"] = before.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": msgspec.to_builtins(claimed),
        }

    async def _release(self) -> None:
        """Best effort, so that the next operator need not wait for the Lease to expire.

        Reads it first: the answer to a renewal that was cut off by the stop was not seen.
        """
        if self._seen is None or self._is_held_by_another():
            return
        try:
            async with asyncio.timeout(RELEASE_S):
                found = await self._api.get(f"{self._leases}/{LEASE}")
                if found is None:
                    return
                self._observe(_read(found))
                if self._is_held_by_another():
                    return
                body = self._claim(self._seen, release=True)
                await self._api.replace(f"{self._leases}/{LEASE}", body)
        except (KubernetesRefused, *ApiUnreachable, *UNDECODABLE) as error:
            log.info("lease_not_released", error=str(error) or type(error).__name__)
        finally:
            self._seen = None


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Cancels the task and waits until it has ended."""
    task.cancel()
    await asyncio.wait([task])
