"""From a node that kube-scheduler has chosen to a pod that is bound, with its cards.

    pick -> claim (compare-and-set per card, one batch) -> Binding with the cards in it -> reply

Bound is said only when the Binding is there. Whatever stops in between leaves a claim: the next try
of the same pod takes it over, and one that nobody comes back for is tended to.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

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
from joulie_extender.binding.binder import Binder, CannotTell, Found, Order, Told
from joulie_extender.binding.claim_log import Ledger
from joulie_extender.decide import decide
from joulie_extender.decide.scoring import Weights
from joulie_extender.decide.snapshot import Moment
from joulie_extender.gpu.card_choice import Pick, pick
from joulie_extender.gpu.fit import wish_of
from joulie_extender.protocol.kube_scheduler import Binding
from joulie_projections.view.view import View

RETRY_S = 0.05  # doubled with each try
NO_CARDS = "the node has not the cards any more that the pod asks for"
NO_NODE = "the node is not there any more"
NO_POD = "the pod is not there any more"
ELSEWHERE = "the pod is bound to another node already"
LATE = "the time of a binding was over before it was done"
UNREADABLE = "an annotation of the pod about GPUs cannot be read:"


class Patience(NamedTuple):
    bind_s: float = 3.0  # all of it; less than kube-scheduler's httpTimeout
    claim_s: int = 90  # longer than an API server may work on a Binding that nobody waits for


class Failed(Exception):
    def __init__(self, outcome: BindOutcome, why: str) -> None:
        super().__init__(why)
        self.outcome: BindOutcome = outcome


class Bindings:
    def __init__(
        self,
        view: View,
        ledger: Ledger,
        binder: Binder,
        weights: Weights,
        clock: Callable[[], int],
        patience: Patience = Patience(),  # noqa: B008
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._binder = binder
        self._weights = weights
        self._clock = clock
        self._patience = patience

    async def bind(self, asked: Binding) -> BindDecided:
        """Never raises: what went wrong is the answer."""
        given: list[Pick] = []
        outcome: BindOutcome = "failed"
        error = ""
        try:
            async with asyncio.timeout(self._patience.bind_s):
                await self._bound(asked, given)
            outcome = "bound"
        except Failed as failure:
            outcome, error = failure.outcome, str(failure)
        except TimeoutError:
            error = LATE
        except ExpectationFailed:
            outcome, error = "lost-race", NO_CARDS
        except (BusError, ViewBehind):
            error = "the claims on cards cannot be written right now"
        except CannotTell:
            error = "nothing can be learned about the pod right now"
        return self._decided(asked, given[-1] if given else None, outcome, error)

    def _decided(
        self, asked: Binding, given: Pick | None, outcome: BindOutcome, error: str
    ) -> BindDecided:
        return BindDecided(
            pod_uid=asked.pod_uid,
            namespace=asked.namespace,
            name=asked.pod_name,
            node=asked.node,
            basis=decide.basis_of(self._moment(), self._weights),
            outcome=outcome,
            cards=[taken.card for taken in given.cards] if given else [],
            error=error,
            because=given.because if given else "",
        )

    def _moment(self) -> Moment:
        seen = self._view.snapshot()
        return Moment(seen.twin_columns, seen.position, seen.age_ms, self._clock())

    async def _bound(self, asked: Binding, given: list[Pick]) -> None:
        pod = await self._pod(asked)
        if pod is None:
            return  # bound already, and there
        if pod.gpu.unreadable:
            raise Failed("failed", f"{UNREADABLE} {pod.gpu.unreadable}")
        node = self._view.cluster_state.nodes.get(asked.node)
        if node is None or not node.present:
            raise Failed("failed", NO_NODE)
        if wish_of(pod) is not None:
            given.append(await self._claimed(asked, pod))
        cards = tuple(taken.card for taken in given[-1].cards) if given else ()
        await self._post(asked, cards)

    async def _pod(self, asked: Binding) -> PodAsk | None:
        """What it asks for; bind is told no more than its name."""
        known = self._view.cluster_state.pods.get(asked.pod_uid)
        if known is not None and not known.node and not known.finished:
            return known.pod
        found = await self._find(asked)
        if found.state in ("gone", "finished"):
            raise Failed("failed", NO_POD)
        if found.state == "bound":
            if found.node != asked.node:
                raise Failed("failed", ELSEWHERE)
            return None
        assert found.ask is not None, "a pod that waits was read"
        return found.ask

    # --- claiming ---

    async def _claimed(self, asked: Binding, pod: PodAsk) -> Pick:
        """Until nobody else comes first, or nothing is left, or the time is over."""
        while True:
            wanted = self._pick(pod, asked.node)
            if wanted is None:
                raise Failed("lost-race", NO_CARDS)
            cards = [taken.card for taken in wanted.cards]
            with contextlib.suppress(ExpectationFailed):
                if await self._ledger.write(cards, partial(self._claims, asked, pod, wanted)):
                    return wanted

    def _pick(self, pod: PodAsk, node: str) -> Pick | None:
        twin_columns = self._view.snapshot().twin_columns
        return pick(pod, node, twin_columns, self._weights.gpu.aliases)

    def _cards_of(self, uid: str) -> set[str]:
        cards = self._view.cluster_state.gpus
        twin_columns = self._view.snapshot().twin_columns.cards
        held = (twin_columns.uuids[row] for row in twin_columns.held_by([uid]))
        return {card for card in held if uid in cards[card].claims}

    def _claims(self, asked: Binding, pod: PodAsk, wanted: Pick) -> Sequence[ClaimEvent]:
        """Nothing if by now the choice would be another one.

        Cards that the pod claimed before stay claimed: an earlier Binding may still be on its way.
        """
        if self._pick(pod, asked.node) != wanted:
            return ()
        return [
            CardClaimed(
                card=taken.card,
                pod_uid=pod.uid,
                namespace=asked.namespace,
                name=asked.pod_name,
                node=asked.node,
                mb=taken.mb,
                expires_s=self._patience.claim_s,
            )
            for taken in wanted.cards
        ]

    # --- binding ---

    async def _post(self, asked: Binding, cards: tuple[str, ...]) -> None:
        order = Order(asked.namespace, asked.pod_name, asked.pod_uid, asked.node, cards)
        pause = RETRY_S
        while True:
            told = await self._binder.bind(order)
            if await self._is_done(asked, cards, told):
                return
            await asyncio.sleep(pause)
            pause *= 2

    async def _is_done(self, asked: Binding, cards: tuple[str, ...], told: Told) -> bool:
        """False to try again: it may have been carried out or not, which the next try tells."""
        match told.fate:
            case "made":
                await self._keep_only(asked.pod_uid, cards, "moved")
                return True
            case "unclear":
                return False
            case "refused":
                await self._keep_only(asked.pod_uid, (), "not-bound")
                raise Failed("failed", f"the API server refused the Binding: {told.why}")
            case "gone":
                await self._keep_only(asked.pod_uid, (), "gone")
                raise Failed("failed", NO_POD)
            case "conflict":
                return await self._is_as_ordered(asked)

    async def _is_as_ordered(self, asked: Binding) -> bool:
        """Conflict is said both of a pod that is bound and of a name that is another pod's."""
        found = await self._find(asked)
        if found.state == "waiting":
            return False
        if found.state != "bound":
            await self._keep_only(asked.pod_uid, (), "gone")
            raise Failed("failed", NO_POD)
        await self._keep_only(asked.pod_uid, found.cards, "moved")
        if found.node != asked.node:
            raise Failed("failed", ELSEWHERE)
        return True

    async def _find(self, asked: Binding) -> Found:
        return await self._binder.find(asked.namespace, asked.pod_name, asked.pod_uid)

    async def _keep_only(self, uid: str, kept: Iterable[str], why: ReleaseReason) -> None:
        """What does not succeed is tended to later, as is what the view does not show yet."""
        named = self._cards_of(uid) - set(kept)
        with contextlib.suppress(BusError, ViewBehind):
            if named:
                await self._ledger.write(named, lambda: _released(uid, named, why))


def _released(uid: str, cards: Iterable[str], why: ReleaseReason) -> list[ClaimEvent]:
    return [ClaimReleased(card=card, pod_uid=uid, why=why) for card in sorted(cards)]
