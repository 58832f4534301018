"""The extender verbs: how each is parsed, answered, and answered without a decision (fallback).

Caches change no answer.
"""

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from joulie_bus.events import Duty, FallbackAnswer, Verb
from joulie_bus.http.exchange import Body
from joulie_extender.catalogue.weights import Weights
from joulie_extender.debug.recent_answers import VerbDecision
from joulie_extender.decide import decide
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import DecisionOptions
from joulie_extender.gpu.fit import asks
from joulie_extender.protocol import kube_scheduler
from joulie_extender.protocol.kube_scheduler import ExtenderArgs, PreemptionArgs, RequestReader
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES

# In place of an answer; kube-scheduler shows it to users. No names, no numbers, no "%".
NOT_NOW = "the energy rules cannot be looked at right now and are set to refuse in that case"
NO_CARDS_NOW = "the GPU cards cannot be looked at right now and are set not to be given out then"

A = TypeVar("A", ExtenderArgs, PreemptionArgs)


class Answer(NamedTuple):
    decision: VerbDecision
    reply: bytes
    saved: int = 0  # scores that would have been counted twice


class VerbHandler(ABC, Generic[A]):
    """One verb."""

    name: Verb
    duty: Duty

    @abstractmethod
    def read(self, body: Body) -> A:
        """Raises BadRequest or BadQuantity."""

    @abstractmethod
    def answer(self, asked: A, context: DecisionContext, weights: Weights) -> Answer: ...

    @abstractmethod
    def fallback(self, asked: A, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Passes every candidate or none, in the form in which the candidates were sent."""


class Filter(VerbHandler[ExtenderArgs]):
    name: Verb = "filter"

    def __init__(self, reader: RequestReader, duty: Duty = "energy") -> None:
        self._reader = reader
        self.duty = duty

    def read(self, body: Body) -> ExtenderArgs:
        return self._reader.read(body)

    def answer(self, asked: ExtenderArgs, context: DecisionContext, weights: Weights) -> Answer:
        self._reader.index_of(context.twin_columns)
        rows = asked.names.rows_on(context.twin_columns)
        candidates = asked.names.candidates_on(context.twin_columns)
        options = DecisionOptions(self.duty, asked.eco_labels)
        decision = decide.filter_decision(asked.pod, candidates, rows, context, weights, options)
        passed = decide.let_through(decision)
        if asked.whole:
            return Answer(decision, kube_scheduler.nodes_reply(asked, passed, decision.reason))
        return Answer(decision, kube_scheduler.names_reply(asked, passed, decision.reason))

    def fallback(self, asked: ExtenderArgs, answer: FallbackAnswer, weights: Weights) -> bytes:
        if answer == "closed":
            return kube_scheduler.error_reply(NO_CARDS_NOW if asks(asked.pod) else NOT_NOW)
        passed = [True] * len(asked.names)
        if not asked.whole:
            return kube_scheduler.names_reply(asked, passed, "")
        return kube_scheduler.nodes_reply(asked, passed, "")


class Prioritize(VerbHandler[ExtenderArgs]):
    name: Verb = "prioritize"

    def __init__(self, reader: RequestReader, duty: Duty = "energy") -> None:
        self._reader = reader
        self.duty = duty

    def read(self, body: Body) -> ExtenderArgs:
        return self._reader.read(body)

    def answer(self, asked: ExtenderArgs, context: DecisionContext, weights: Weights) -> Answer:
        pod, names = asked.pod, asked.names
        index = self._reader.index_of(context.twin_columns)
        candidates = names.candidates_on(context.twin_columns)
        decision = decide.prioritize_decision(pod, candidates, names, context, weights, self.duty)
        scores = decide.answered_scores(decision)
        reply = index.host_priorities(names.rows_on(context.twin_columns), scores)
        if reply is not None:
            return Answer(decision, reply)
        return Answer(
            decision, kube_scheduler.prioritize_reply(names, scores), saved=names.repeated
        )

    def fallback(self, asked: ExtenderArgs, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Neutral scores in both cases: the protocol has no error here, and a failure would drop
        all scores.
        """
        neutral = 0 if self.duty == "gpu" else int(weights.neutral * weights.score_range / 100)
        scores = np.full(len(asked.names), neutral, np.int64)
        return kube_scheduler.prioritize_reply(asked.names, scores)


class Preempt(VerbHandler[PreemptionArgs]):
    name: Verb = "preempt"

    def __init__(
        self, duty: Duty = "energy", gpu_resources: tuple[str, ...] = GPU_RESOURCES
    ) -> None:
        self.duty = duty
        self._gpus = gpu_resources

    def read(self, body: Body) -> PreemptionArgs:
        return kube_scheduler.read_preempt(body, self._gpus)

    def answer(self, asked: PreemptionArgs, context: DecisionContext, weights: Weights) -> Answer:
        rows = asked.names.rows_on(context.twin_columns)
        candidates = asked.names.candidates_on(context.twin_columns)
        options = DecisionOptions(self.duty, victims=self._holders(asked, context))
        decision = decide.preempt_decision(asked.pod, candidates, rows, context, weights, options)
        return Answer(decision, kube_scheduler.preempt_reply(asked, decide.passed(decision)))

    def _holders(self, asked: PreemptionArgs, context: DecisionContext) -> tuple[str, ...]:
        if self.duty == "energy" or not asks(asked.pod):
            return ()
        holders = context.twin_columns.cards.holders
        return tuple(sorted({uid for uid in kube_scheduler.victims_of(asked) if uid in holders}))

    def fallback(self, asked: PreemptionArgs, answer: FallbackAnswer, weights: Weights) -> bytes:
        """`closed` proposes no node for preemption."""
        return kube_scheduler.preempt_reply(asked, [answer == "open"] * len(asked.names))
