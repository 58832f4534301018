"""Binds a pod to the node that kube-scheduler has chosen, with its GPUs.

    choose -> claim (compare-and-set per card, one batch) -> Binding with the cards in it -> reply

The reply is success only when the Binding exists. A failure in between leaves a claim: the next
attempt for the same pod takes it over, or the claim reconciler releases it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import BusError, ExpectationFailed, ViewBehind
from joulie_bus.events import (
    BindDecided,
    BindOutcome,
    CardClaimed,
    ClaimEvent,
    ClaimReleased,
    PodAsk,
    ReleaseReason,
)
from joulie_extender.binding.binder import Binder, BindRequest, BindResult, LookupFailed, PodLookup
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide import decide
from joulie_extender.decide.context import DecisionContext
from joulie_extender.gpu.card_choice import CardChoice, choose_cards
from joulie_extender.gpu.fit import gpu_request_of
from joulie_extender.protocol.kube_scheduler import Binding
from joulie_projections.pods.devices import is_by_dra
from joulie_projections.view.view import View

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0  # between two tries
CARDS_TAKEN = "the node has not the cards any more that the pod asks for"
NO_NODE = "the node is not there any more"
NO_POD = "the pod is not there any more"
BOUND_ELSEWHERE = "the pod is bound to another node already"
TIMED_OUT = "the time of a binding was over before it was done"
UNREADABLE = "an annotation of the pod about GPUs cannot be read:"


class BindTimeouts(NamedTuple):
    bind_s: float = 3.0  # for the whole verb; less than kube-scheduler's httpTimeout
    claim_s: int = (
        90  # longer than an API server may take for a Binding after its client has timed out
    )


class BindFailed(Exception):
    def __init__(self, outcome: BindOutcome, why: str) -> None:
        super().__init__(why)
        self.outcome: BindOutcome = outcome


class Bindings:
    def __init__(
        self,
        view: View,
        claim_log: ClaimLog,
        binder: Binder,
        weights: Weights,
        clock: Callable[[], int],
        bind_timeouts: BindTimeouts = BindTimeouts(),  # noqa: B008
    ) -> None:
        self._view = view
        self._claim_log = claim_log
        self._binder = binder
        self._weights = weights
        self._clock = clock
        self._bind_timeouts = bind_timeouts

    async def bind(self, asked: Binding) -> BindDecided:
        """Never raises: a failure is part of the decision."""
        given: list[CardChoice] = []
        outcome: BindOutcome = "failed"
        error = ""
        try:
            async with asyncio.timeout(self._bind_timeouts.bind_s):
                await self._bound(asked, given)
            outcome = "bound"
        except BindFailed as failure:
            outcome, error = failure.outcome, str(failure)
        except TimeoutError:
            error = TIMED_OUT
        except ExpectationFailed:
            outcome, error = "lost-race", CARDS_TAKEN
        except (BusError, ViewBehind):
            error = "the claims on cards cannot be written right now"
        except LookupFailed:
            error = "nothing can be learned about the pod right now"
        return self._decided(asked, given[-1] if given else None, outcome, error)

    def _decided(
        self, asked: Binding, given: CardChoice | None, outcome: BindOutcome, error: str
    ) -> BindDecided:
        return BindDecided(
            pod_uid=asked.pod_uid,
            namespace=asked.namespace,
            name=asked.pod_name,
            node=asked.node,
            basis=decide.basis_of(self._context(), self._weights),
            outcome=outcome,
            cards=[taken.card for taken in given.cards] if given else [],
            error=error,
            because=given.because if given else "",
        )

    def _context(self) -> DecisionContext:
        seen = self._view.snapshot()
        return DecisionContext(
            seen.twin_columns,
            seen.position,
            seen.age_ms,
            self._clock(),
            seen.behind_ms,
            seen.incarnation,
        )

    async def _bound(self, asked: Binding, given: list[CardChoice]) -> None:
        pod = await self._pod(asked)
        if pod is None:
            return  # already bound to this node
        if pod.gpu.unreadable:
            raise BindFailed("failed", f"{UNREADABLE} {pod.gpu.unreadable}")
        node = self._view.cluster_state.nodes.get(asked.node)
        if node is None or not node.present:
            raise BindFailed("failed", NO_NODE)
        if gpu_request_of(pod) is not None and not self._is_by_dra(pod, asked.node):
            given.append(await self._claimed(asked, pod))
        cards = tuple(taken.card for taken in given[-1].cards) if given else ()
        await self._post(asked, cards)

    def _is_by_dra(self, pod: PodAsk, node: str) -> bool:
        """Whether kube-scheduler gives out the cards, by DRA."""
        if is_by_dra(pod):
            return True
        columns = self._view.snapshot().twin_columns
        row = columns.rows.get(node, 0)
        return bool(columns.cards.on(np.array([row])).bools("by_dra").any()) if row else False

    async def _pod(self, asked: Binding) -> PodAsk | None:
        """The pod's requests, from the view or the API server: the bind verb has its name only."""
        known = self._view.cluster_state.pods.get(asked.pod_uid)
        if known is not None and not known.node and not known.finished:
            return known.pod
        found = await self._find(asked)
        if found.state in ("gone", "finished"):
            raise BindFailed("failed", NO_POD)
        if found.state == "bound":
            if found.node != asked.node:
                raise BindFailed("failed", BOUND_ELSEWHERE)
            return None
        assert found.ask is not None, "a pod that waits was read"
        return found.ask

    # --- claiming ---

    async def _claimed(self, asked: Binding, pod: PodAsk) -> CardChoice:
        """Retries until the claim is stored, no card is left, or the time is over."""
        while True:
            wanted = self._choose(pod, asked.node)
            if wanted is None:
                raise BindFailed("lost-race", CARDS_TAKEN)
            cards = [taken.card for taken in wanted.cards]
            with contextlib.suppress(ExpectationFailed):
                if await self._claim_log.write(cards, partial(self._claims, asked, pod, wanted)):
                    return wanted

    def _choose(self, pod: PodAsk, node: str) -> CardChoice | None:
        twin_columns = self._view.snapshot().twin_columns
        return choose_cards(pod, node, twin_columns, self._weights.gpu)

    def _cards_of(self, uid: str) -> set[str]:
        cards = self._view.cluster_state.gpus
        twin_columns = self._view.snapshot().twin_columns.cards
        held = (twin_columns.uuids[row] for row in twin_columns.held_by([uid]))
        return {card for card in held if uid in cards[card].claims}

    def _claims(self, asked: Binding, pod: PodAsk, wanted: CardChoice) -> Sequence[ClaimEvent]:
        """Nothing if the choice has changed by now.

        Earlier claims of the pod stay: an earlier Binding may still be in flight.
        """
        if self._choose(pod, asked.node) != wanted:
            return ()
        return [
            CardClaimed(
                card=taken.card,
                pod_uid=pod.uid,
                namespace=asked.namespace,
                name=asked.pod_name,
                node=asked.node,
                mb=taken.mb,
                expires_s=self._bind_timeouts.claim_s,
            )
            for taken in wanted.cards
        ]

    # --- binding ---

    async def _post(self, asked: Binding, cards: tuple[str, ...]) -> None:
        request = BindRequest(asked.namespace, asked.pod_name, asked.pod_uid, asked.node, cards)
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            result = await self._binder.bind(request)
            if await self._is_done(asked, cards, result):
                return
            await asyncio.sleep(backoff.failed())

    async def _is_done(self, asked: Binding, cards: tuple[str, ...], result: BindResult) -> bool:
        """False to try again: the request may have been carried out; the next attempt finds out."""
        match result.status:
            case "made":
                await self._keep_only(asked.pod_uid, cards, "moved")
                return True
            case "unclear":
                return False
            case "refused":
                await self._keep_only(asked.pod_uid, (), "not-bound")
                raise BindFailed("failed", f"the API server refused the Binding: {result.why}")
            case "gone":
                await self._keep_only(asked.pod_uid, (), "gone")
                raise BindFailed("failed", NO_POD)
            case "conflict":
                return await self._is_as_ordered(asked)

    async def _is_as_ordered(self, asked: Binding) -> bool:
        """The API server reports a conflict for a bound pod and for another pod of this name."""
        found = await self._find(asked)
        if found.state == "waiting":
            return False
        if found.state != "bound":
            await self._keep_only(asked.pod_uid, (), "gone")
            raise BindFailed("failed", NO_POD)
        await self._keep_only(asked.pod_uid, found.cards, "moved")
        if found.node != asked.node:
            raise BindFailed("failed", BOUND_ELSEWHERE)
        return True

    async def _find(self, asked: Binding) -> PodLookup:
        return await self._binder.find(asked.namespace, asked.pod_name, asked.pod_uid)

    async def _keep_only(self, uid: str, kept: Iterable[str], why: ReleaseReason) -> None:
        """Releases other cards of the pod; the claim reconciler repeats what fails here."""
        named = self._cards_of(uid) - set(kept)
        with contextlib.suppress(BusError, ViewBehind):
            if named:
                await self._claim_log.write(named, lambda: _released(uid, named, why))


def _released(uid: str, cards: Iterable[str], why: ReleaseReason) -> list[ClaimEvent]:
    return [ClaimReleased(card=card, pod_uid=uid, why=why) for card in sorted(cards)]
