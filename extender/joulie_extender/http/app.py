"""The webhook itself: asks a verb, writes down, replies. It decides nothing."""

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
    PodAsk,
)
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_extender.binding.bind import Bindings
from joulie_extender.debug.pages import explanation, scoring_page
from joulie_extender.debug.recent_answers import Explanations
from joulie_extender.decide import decide
from joulie_extender.decide.scoring import Weights
from joulie_extender.decide.snapshot import Moment
from joulie_extender.gpu.fit import asks
from joulie_extender.http.handlers import A, Answer, Filter, Preempt, Prioritize
from joulie_extender.http.verb_metrics import Counted
from joulie_extender.protocol.exchange import Reply, Request, refusal
from joulie_extender.protocol.kube_scheduler import BAD_REQUESTS, Reader, bind_reply, read_binding
from joulie_projections.hardware.gpu_resources import gpu_resources
from joulie_projections.pods.classify import in_namespace
from joulie_projections.view.view import Snapshot

Look = Callable[[], Snapshot]
# What comes back tells whether the broker has it; None if nobody waits for that.
Record = Callable[[DecisionEntry], Awaitable[bool] | None]
Clock = Callable[[], int]
Later = Callable[[Callable[[], None]], object]  # when the reply has been written
NOBODY_BINDS = (
    "nothing is bound here: the log is out of reach, or EXTENDER_BINDS names nobody to bind with"
)
DUTIES: tuple[Duty, ...] = get_args(Duty)
log = get_logger("extender")


class Conduct(NamedTuple):
    """What to do when there is no answer to give."""

    fails: FallbackAnswer = "open"
    gpu_fails: FallbackAnswer = "closed"  # of pods that say what cards they want
    deadline_s: float = 0.1
    is_strict: bool = False  # no answer that the broker has not stored

    def fails_for(self, duty: Duty, pod: PodAsk) -> FallbackAnswer:
        """Energy is a preference, a card that is not there is none."""
        return self.gpu_fails if duty != "energy" and asks(pod) else self.fails


class Extender:
    """Answers from one snapshot per request; every answer is recorded before it is given."""

    def __init__(
        self,
        look: Look,
        record: Record,
        weights: Weights,
        clock: Clock,
        is_ready: Callable[[], bool] = lambda: True,
        conduct: Conduct = Conduct(),  # noqa: B008
    ) -> None:
        self._look = look
        self._record = record
        self._weights = weights
        self._clock = clock
        self._conduct = conduct
        self._explanations = Explanations()
        self.is_ready = is_ready
        self.bindings: Bindings | None = None  # once there is a log to claim in
        self.later: Later = _at_once
        resources = gpu_resources(weights.gpu.resources)
        reader = Reader(resources)
        self._filters = {duty: Counted(Filter(reader, duty)) for duty in DUTIES}
        self._prioritizes = {duty: Counted(Prioritize(reader, duty)) for duty in DUTIES}
        self._preempts = {duty: Counted(Preempt(duty, resources)) for duty in DUTIES}

    def filter(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._filters[duty], request)

    def prioritize(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._prioritizes[duty], request)

    def preempt(self, request: Request, duty: Duty = "all") -> Reply | Awaitable[Reply]:
        return self._answer(self._preempts[duty], request)

    async def bind(self, request: Request) -> Reply:
        """One call at a time per pod, many pods at once: each waits for the log and for others."""
        started = time.perf_counter()
        try:
            asked = read_binding(request.body)
        except BAD_REQUESTS as error:
            return refusal(400, str(error))
        if self.bindings is None:
            return Reply(200, bind_reply(NOBODY_BINDS))
        decided = await self.bindings.bind(asked)
        stored = self._record(decided)
        metrics.BINDINGS.labels(outcome=decided.outcome).inc()
        metrics.BIND_SECONDS.observe(time.perf_counter() - started)
        if stored is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stored, self._conduct.deadline_s)
        return Reply(200, bind_reply(decided.error))

    def scoring(self) -> bytes:
        return msgspec.json.encode(scoring_page(self._moment(), self._weights))

    def explain(self, uid: str) -> bytes | None:
        page = explanation(self._explanations.of(uid), self._look().twin_columns)
        return None if page is None else msgspec.json.encode(page)

    def _moment(self) -> Moment:
        return self._at(self._look())

    def _at(self, seen: Snapshot) -> Moment:
        return Moment(seen.twin_columns, seen.position, seen.age_ms, self._clock())

    def _answer(self, verb: Counted[A], request: Request) -> Reply | Awaitable[Reply]:
        try:
            return self._answered(verb, request)
        except OutOfBounds as error:  # a name that no object of Kubernetes has
            verb.refused.inc()
            return refusal(400, str(error))

    def _answered(self, verb: Counted[A], request: Request) -> Reply | Awaitable[Reply]:
        started = time.perf_counter()
        try:
            asked = verb.question.read(request.body)
        except BAD_REQUESTS as error:
            verb.refused.inc()
            return refusal(400, str(error))
        seen = self._look()
        given = seen.namespaces.get(asked.pod.namespace)
        if given is not None:
            asked = asked._replace(pod=in_namespace(asked.pod, given))
        call = _Call(verb, asked, self._at(seen), request.begun + self._conduct.deadline_s)
        answer = self._thought(call)
        if not isinstance(answer, Answer):
            return self._fallback(call, answer)
        stored = self._record(answer.decision)
        seconds = time.perf_counter() - started
        self.later(lambda: self._remember(call, answer, seconds))
        reply = _reply(answer.reply, answer.decision.basis)
        return reply if stored is None else self._when_stored(call, stored, reply)

    def _thought(self, call: "_Call[A]") -> Answer | FallbackReason:
        """An answer, or why there is none."""
        if self._fails(call) == "closed" and not self.is_ready():
            return "not-ready"
        if time.monotonic() > call.deadline:
            return "overdue"
        try:
            return call.verb.question.answer(call.asked, call.moment, self._weights)
        except Exception:
            log.exception("thinking_failed", verb=call.verb.question.name, pod=call.asked.pod.uid)
            return "failed"

    def _remember(self, call: "_Call[A]", answer: Answer, seconds: float) -> None:
        """After the reply has been written."""
        self._explanations.keep(answer.decision)
        call.verb.asked(call.asked)
        call.verb.answered(answer)
        call.verb.seconds.observe(seconds)

    def _fallback(self, call: "_Call[A]", why: FallbackReason) -> Reply:
        """Scheduling goes on; that this was no real answer is counted, and stands in the log."""
        answer: FallbackAnswer = "closed" if why == "unrecorded" else self._fails(call)
        question, asked = call.verb.question, call.asked
        basis = decide.basis_of(call.moment, self._weights)
        metrics.FALLBACKS.labels(verb=question.name, reason=why).inc()
        if question.name == "prioritize":
            metrics.SCORES_SAVED.inc(len(asked.names))
        self._record(
            FallbackAnswered(
                pod_uid=asked.pod.uid,
                namespace=asked.pod.namespace,
                name=asked.pod.name,
                verb=question.name,
                why=why,
                answer=answer,
                candidates=len(asked.names),
                basis=basis,
            )
        )
        call.verb.asked(call.asked)
        call.verb.fallen_back.inc()
        return _reply(question.fallback(asked, answer, self._weights), basis)

    def _fails(self, call: "_Call[A]") -> FallbackAnswer:
        return self._conduct.fails_for(call.verb.question.duty, call.asked.pod)

    async def _when_stored(self, call: "_Call[A]", stored: Awaitable[bool], reply: Reply) -> Reply:
        is_stored = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(call.deadline - time.monotonic()):
                is_stored = await stored
        if is_stored:
            return reply
        metrics.DECISIONS_UNACKNOWLEDGED.inc()
        return self._fallback(call, "unrecorded") if self._conduct.is_strict else reply


class _Call(NamedTuple, Generic[A]):
    """One request on its way through."""

    verb: Counted[A]
    asked: A
    moment: Moment
    deadline: float  # by the monotonic clock


def _at_once(what: Callable[[], None]) -> None:
    what()


def _reply(body: bytes, basis: Basis) -> Reply:
    """Says what it rests on."""
    rests_on = (basis.view, basis.view_age_ms)
    return Reply(200, body, b"Joulie-View: %d\r\nJoulie-View-Age-Ms: %d\r\n" % rests_on)
