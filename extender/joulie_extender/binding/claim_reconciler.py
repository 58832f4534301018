"""Reconciles claims. Every replica runs it; compare-and-set lets one of them write."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from joulie_bus.errors import BusError, ViewBehind
from joulie_bus.events import ClaimEvent
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_extender.binding.binder import Binder, LookupFailed
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.gpu.bound_pods import claims_of_bound, is_bound_to_cards
from joulie_extender.gpu.claim_proposals import Proposal, proposals, surplus
from joulie_projections.state.cards import Claim
from joulie_projections.view.view import View

INTERVAL_S = 0.5
SLICE = 500  # holders between two yields to the event loop, which also serves kube-scheduler
AT_ONCE = 8
BOUND_PODS_EVERY = 8  # rounds; it reads every pod
PODS_SLICE = 1_000
log = get_logger("claims")


class ClaimReconciler:
    def __init__(
        self,
        view: View,
        claim_log: ClaimLog,
        binder: Binder,
        clock: Callable[[], int],
        grace_s: float = 6.0,
    ) -> None:
        self._view = view
        self._claim_log = claim_log
        self._binder = binder
        self._clock = clock
        self._grace_s = grace_s
        self._rounds = 0
        self._expired_since: dict[Proposal, float] = {}  # since when, by the monotonic clock

    async def run(self) -> None:
        """Runs until cancelled. What fails is tried again."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self._view.is_ready:
                await self.reconcile()

    async def reconcile(self) -> None:
        due = self._past_grace([proposal async for proposal in self._due()])
        if self._rounds % BOUND_PODS_EVERY == 0:
            due += [proposal async for proposal in self._without_claim()]
        self._rounds += 1
        for at in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._write(each) for each in due[at : at + AT_ONCE]))

    def _past_grace(self, due: list[Proposal]) -> list[Proposal]:
        """A clock that is ahead must not end a claim while its pod is being bound."""
        now = time.monotonic()
        expired = [proposal for proposal in due if proposal.unless_bound is not None]
        self._expired_since = {each: self._expired_since.get(each, now) for each in expired}
        return [each for each in due if now - self._expired_since.get(each, 0.0) >= self._grace_s]

    async def _due(self) -> AsyncIterator[Proposal]:
        cards = self._view.snapshot().twin_columns.cards
        now = self._clock()
        for number, (uid, rows) in enumerate(cards.holders.items(), 1):
            held = [cards.uuids[row] for row in rows]
            for proposal in self._proposals(uid, held, now):
                yield proposal
            if number % SLICE == 0:
                await asyncio.sleep(0)

    async def _without_claim(self) -> AsyncIterator[Proposal]:
        """For pods that were bound without a claim."""
        if not self._view.cluster_state.gpus:
            return
        pods, holders = (
            self._view.cluster_state.pods,
            self._view.snapshot().twin_columns.cards.holders,
        )
        for number, (uid, pod) in enumerate(list(pods.items()), 1):
            if is_bound_to_cards(pod) and len(holders.get(uid, ())) < max(1, pod.pod.gpu_cards):
                for proposal in self._of_bound(uid):
                    yield proposal
            if number % PODS_SLICE == 0:
                await asyncio.sleep(0)

    def _of_bound(self, uid: str) -> Iterator[Proposal]:
        pod = self._view.cluster_state.pods.get(uid)
        if pod is None:
            return iter(())
        twin_columns = self._view.snapshot().twin_columns
        row = twin_columns.rows.get(pod.node, 0)
        on_node = twin_columns.cards.on(np.array([row])).uuids if row else []
        return claims_of_bound(self._view.cluster_state, uid, on_node)

    def _proposals(self, uid: str, held: list[str], now: int) -> Iterator[Proposal]:
        cluster_state = self._view.cluster_state
        of_cards = chain.from_iterable(proposals(cluster_state, uuid, now) for uuid in held)
        mine = [proposal for proposal in of_cards if proposal.uid == uid]
        yield from mine or surplus(cluster_state, uid, held)

    async def _write(self, proposal: Proposal) -> None:
        claim = proposal.unless_bound
        try:
            if claim is not None and await self._is_bound(proposal.uid, claim):
                return
            done = await self._claim_log.write(
                [proposal.card], lambda: self._events_still_due(proposal)
            )
        except LookupFailed as error:
            log.warning("claim_kept", card=proposal.card, pod=proposal.uid, why=str(error))
        except (BusError, ViewBehind, TimeoutError):
            pass  # another replica was first, or the claim log has logged the reason
        else:
            for event in done:
                metrics.CLAIMS_TENDED.labels(what=getattr(event, "why", event.TYPE[6:])).inc()

    async def _is_bound(self, uid: str, claim: Claim) -> bool:
        """A watch that lags must not cost a running pod its card."""
        found = await self._binder.find(claim.namespace, claim.name, uid)
        return found.state == "bound" and found.node == claim.node

    def _events_still_due(self, proposal: Proposal) -> Sequence[ClaimEvent]:
        cluster_state, now = self._view.cluster_state, self._clock()
        again = chain(
            proposals(cluster_state, proposal.card, now),
            surplus(cluster_state, proposal.uid, [*self._held(proposal.uid)]),
            self._of_bound(proposal.uid),
        )
        return proposal.events if proposal in again else ()

    def _held(self, uid: str) -> Iterator[str]:
        cards = self._view.snapshot().twin_columns.cards
        return (cards.uuids[row] for row in cards.held_by([uid]))
