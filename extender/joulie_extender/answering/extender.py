"""The extender's application: reads a request, calls the verb, records the decision, replies."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, get_args

import msgspec

from joulie_bus.errors import OutOfBounds
from joulie_bus.events import (
    Basis,
    DecisionEntry,
    Duty,
    FallbackAnswer,
    FallbackAnswered,
    FallbackReason,
    FilterDecided,
    PodAsk,
    PrioritizeDecided,
)
from joulie_bus.http.exchange import Reply, Request, refusal
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_extender.answering.fallback_policy import FallbackPolicy
from joulie_extender.answering.in_flight import PodsInFlight, asks_devices
from joulie_extender.answering.verb_metrics import MeteredVerb
from joulie_extender.binding.bind import Bindings
from joulie_extender.catalogue.weights import Weights
from joulie_extender.debug.pages import ScoringPages, explanation
from joulie_extender.debug.recent_answers import RecentAnswers
from joulie_extender.decide import decide
from joulie_extender.decide.context import DecisionContext
from joulie_extender.protocol.kube_scheduler import (
    BAD_REQUESTS,
    RequestReader,
    bind_reply,
    read_binding,
)
from joulie_extender.verbs.handlers import A, Answer, Filter, Preempt, Prioritize
from joulie_projections.hardware.gpu_resources import gpu_resources
from joulie_projections.pods.classify import with_namespace_class
from joulie_projections.pods.devices import with_asked
from joulie_projections.view.view import ViewSnapshot

TakeSnapshot = Callable[[], ViewSnapshot]
# The result is whether the broker has stored it; None if the reply does not wait for that.
Record = Callable[[DecisionEntry], asyncio.Future[bool] | None]
Clock = Callable[[], int]
Defer = Callable[[Callable[[], None]], object]  # runs the callback after the reply has been written
BINDING_DISABLED = "this extender does not bind: the log is unreachable, or EXTENDER_BINDS is empty"
DUTIES: tuple[Duty, ...] = get_args(Duty)
log = get_logger("extender")


class Extender:
    """Answers each request from one snapshot; the decision is recorded before the reply is sent."""

    def __init__(
        self,
        snapshot: TakeSnapshot,
        record: Record,
        weights: Weights,
        clock: Clock,
        is_ready: Callable[[], bool] = lambda: True,
        fallback_policy: FallbackPolicy = FallbackPolicy(),  # noqa: B008
    ) -> None:
        self._snapshot = snapshot
        self._record = record
        self._weights = weights
        self._clock = clock
        self._fallback_policy = fallback_policy
        self._recent_answers = RecentAnswers()
        self._scoring_pages = ScoringPages(weights, time.monotonic)
        self.is_ready = is_ready
        self.bindings: Bindings | None = None  # None until a log is connected
        self.in_flight = PodsInFlight()
        self.defer: Defer = _at_once
        resources = gpu_resources(weights.gpu.resources)
        reader = RequestReader(resources)
        self._filters = {duty: MeteredVerb(Filter(reader, duty)) for duty in DUTIES}
        self._prioritizes = {duty: MeteredVerb(Prioritize(reader, duty)) for duty in DUTIES}
        self._preempts = {duty: MeteredVerb(Preempt(duty, resources)) for duty in DUTIES}

    def filter(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._filters[duty], request)

    def prioritize(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._prioritizes[duty], request)

    def preempt(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._preempts[duty], request)

    async def bind(self, request: Request) -> Reply:
        """Binds one pod; bindings of many pods run concurrently."""
        started = time.perf_counter()
        try:
            asked = read_binding(request.body)
        except BAD_REQUESTS as error:
            return refusal(400, str(error))
        if self.bindings is None:
            return Reply(200, bind_reply(BINDING_DISABLED))
        row = self._snapshot().twin_columns.rows.get(asked.node, 0)
        self.in_flight.bound(asked.pod_uid, row - 1)
        decided = await self.bindings.bind(asked)
        stored = self._record(decided)
        metrics.BINDINGS.labels(outcome=decided.outcome).inc()
        metrics.BIND_SECONDS.observe(time.perf_counter() - started)
        if stored is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._fallback_policy.deadline_s):
                    await stored
        return Reply(200, bind_reply(decided.error))

    def scoring(self) -> bytes:
        return self._scoring_pages.encoded(self._context)

    def explain(self, uid: str) -> bytes | None:
        page = explanation(self._recent_answers.of(uid), self._recent_answers.names)
        return None if page is None else msgspec.json.encode(page)

    def _context(self) -> DecisionContext:
        return self._at(self._snapshot())

    def _at(self, snapshot: ViewSnapshot) -> DecisionContext:
        return DecisionContext(
            snapshot.twin_columns,
            snapshot.position,
            snapshot.age_ms,
            self._clock(),
            snapshot.behind_ms,
            snapshot.incarnation,
        )

    def _answer(self, verb: MeteredVerb[A], request: Request) -> Reply | Awaitable[Reply]:
        try:
            return self._answered(verb, request)
        except OutOfBounds as error:  # a name that Kubernetes does not allow
            verb.refused.inc()
            return refusal(400, str(error))

    def _answered(self, verb: MeteredVerb[A], request: Request) -> Reply | Awaitable[Reply]:
        started = time.perf_counter()
        try:
            asked = verb.handler.read(request.body)
        except BAD_REQUESTS as error:
            verb.refused.inc()
            return refusal(400, str(error))
        snapshot = self._snapshot()
        given = snapshot.namespaces.get(asked.pod.namespace)
        if given is not None:
            asked = asked._replace(pod=with_namespace_class(asked.pod, given))
        if asked.pod.devices.claims:
            asked = asked._replace(pod=with_asked(asked.pod, snapshot.gpus_asked))
        context = self._with_in_flight(self._at(snapshot), asked.pod, snapshot)
        call = _Call(verb, asked, context, request.begun + self._fallback_policy.deadline_s)
        answer = self._computed(call)
        if not isinstance(answer, Answer):
            return self._fallback(call, answer)
        if context.in_flight is not None and asks_devices(asked.pod, context.twin_columns.cards):
            self._keep_in_flight(answer)
        stored = self._record(answer.decision)
        seconds = time.perf_counter() - started
        self.defer(lambda: self._count(call, answer, seconds))
        reply = _reply(answer.reply, answer.decision.basis)
        return reply if stored is None else self._when_stored(call, stored, reply)

    def _with_in_flight(
        self, context: DecisionContext, pod: PodAsk, snapshot: ViewSnapshot
    ) -> DecisionContext:
        if not (pod.group or asks_devices(pod, snapshot.twin_columns.cards)):
            return context
        self.in_flight.forget(pod.uid)  # an attempt before this one failed
        return context._replace(in_flight=self.in_flight.at(snapshot, context.now))

    def _keep_in_flight(self, answer: Answer) -> None:
        match answer.decision:
            case PrioritizeDecided() as decision:
                self.in_flight.scored(decision)
            case FilterDecided() as decision:
                self.in_flight.filtered(decision)
            case _:
                pass

    def _computed(self, call: "_Call[A]") -> Answer | FallbackReason:
        """The answer, or the reason why there is none."""
        if self._fails(call) == "closed" and not self.is_ready():
            return "not-ready"
        if time.monotonic() > call.deadline:
            return "overdue"
        try:
            return call.verb.handler.answer(call.asked, call.context, self._weights)
        except Exception:
            log.exception("answer_failed", verb=call.verb.handler.name, pod=call.asked.pod.uid)
            return "failed"

    def _count(self, call: "_Call[A]", answer: Answer, seconds: float) -> None:
        """Updates metrics and recent answers, after the reply has been written."""
        self._recent_answers.keep(answer.decision, call.context.twin_columns)
        call.verb.asked(call.asked)
        call.verb.answered(answer)
        call.verb.seconds.observe(seconds)

    def _fallback(self, call: "_Call[A]", why: FallbackReason) -> Reply | Awaitable[Reply]:
        """Replies by the fallback policy; metrics and the decision log record that it was a
        fallback.
        """
        reply, stored = self._fallen_back(call, why)
        return reply if stored is None else self._when_stored(call, stored, reply)

    def _fallen_back(
        self, call: "_Call[A]", why: FallbackReason
    ) -> tuple[Reply, asyncio.Future[bool] | None]:
        """The reply, and what it waits for."""
        answer: FallbackAnswer = "closed" if why == "unrecorded" else self._fails(call)
        handler, asked = call.verb.handler, call.asked
        basis = decide.basis_of(call.context, self._weights)
        metrics.FALLBACKS.labels(verb=handler.name, reason=why).inc()
        if handler.name == "prioritize":
            metrics.SCORES_SAVED.inc(len(asked.names))
        stored = self._record(
            FallbackAnswered(
                pod_uid=asked.pod.uid,
                namespace=asked.pod.namespace,
                name=asked.pod.name,
                verb=handler.name,
                why=why,
                answer=answer,
                candidates=len(asked.names),
                basis=basis,
            )
        )
        call.verb.asked(call.asked)
        call.verb.fallen_back.inc()
        return _reply(handler.fallback(asked, answer, self._weights), basis), stored

    def _fails(self, call: "_Call[A]") -> FallbackAnswer:
        return self._fallback_policy.fails_for(call.verb.handler.duty, call.asked.pod)

    async def _when_stored(self, call: "_Call[A]", stored: Awaitable[bool], reply: Reply) -> Reply:
        is_stored = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(call.deadline - time.monotonic()):
                is_stored = await stored
        if is_stored:
            return reply
        metrics.DECISIONS_UNACKNOWLEDGED.inc()
        if not self._fallback_policy.is_strict:
            return reply
        closed, unawaited = self._fallen_back(call, "unrecorded")
        if unawaited is not None:
            unawaited.cancel()  # the deadline is over
        return closed


_RESTS_ON = b"Joulie-View: %d\r\nJoulie-View-Age-Ms: %d\r\nJoulie-View-Behind-Ms: %d\r\n"


class _Call(NamedTuple, Generic[A]):
    """The state of one request while it is processed."""

    verb: MeteredVerb[A]
    asked: A
    context: DecisionContext
    deadline: float  # by the monotonic clock


def _at_once(what: Callable[[], None]) -> None:
    what()


def _reply(body: bytes, basis: Basis) -> Reply:
    """Adds the position and the ages of the view as headers."""
    rests_on = (basis.view, basis.view_age_ms, basis.behind_ms or 0)
    return Reply(200, body, _RESTS_ON % rests_on)
