"""What kube-scheduler can ask: how each question is read, answered, and answered without thought.

Pure but for what it remembers, which changes no answer.
"""

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from joulie_bus.events import Duty, FallbackAnswer, Verb
from joulie_extender.debug.recent_answers import Answered
from joulie_extender.decide import decide
from joulie_extender.decide.decide import Sent
from joulie_extender.decide.scoring import Weights
from joulie_extender.decide.snapshot import Moment
from joulie_extender.gpu.fit import asks
from joulie_extender.protocol import kube_scheduler
from joulie_extender.protocol.exchange import Body
from joulie_extender.protocol.kube_scheduler import Asked, Reader, Threatened
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES

# In place of an answer; kube-scheduler shows it to users. No names, no numbers, no "%".
NOT_NOW = "the energy rules cannot be looked at right now and are set to refuse in that case"
NO_CARDS_NOW = "the GPU cards cannot be looked at right now and are set not to be given out then"

A = TypeVar("A", Asked, Threatened)


class Answer(NamedTuple):
    decision: Answered
    reply: bytes
    saved: int = 0  # scores that would have been counted twice


class Question(ABC, Generic[A]):
    """One verb."""

    name: Verb
    duty: Duty

    @abstractmethod
    def read(self, body: Body) -> A:
        """Raises BadRequest or BadQuantity."""

    @abstractmethod
    def answer(self, asked: A, moment: Moment, weights: Weights) -> Answer: ...

    @abstractmethod
    def fallback(self, asked: A, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Everything through, or nothing; of the candidates that were sent, like any answer."""


class Filter(Question[Asked]):
    name: Verb = "filter"

    def __init__(self, reader: Reader, duty: Duty = "energy") -> None:
        self._reader = reader
        self.duty = duty

    def read(self, body: Body) -> Asked:
        return self._reader.read(body)

    def answer(self, asked: Asked, moment: Moment, weights: Weights) -> Answer:
        self._reader.roster_of(moment.twin_columns)
        rows = asked.names.rows_on(moment.twin_columns)
        candidates = asked.names.candidates_on(moment.twin_columns)
        sent = Sent(self.duty, asked.eco_labels)
        decision = decide.filter_decision(asked.pod, candidates, rows, moment, weights, sent)
        passed = decide.let_through(decision)
        if asked.whole:
            return Answer(decision, kube_scheduler.nodes_reply(asked, passed, decision.reason))
        kept = asked.names
        if not decide.all_passed(decision.verdicts):
            kept = self._reader.expect(asked.names.where(passed))
        return Answer(decision, kube_scheduler.names_reply(asked, kept, passed, decision.reason))

    def fallback(self, asked: Asked, answer: FallbackAnswer, weights: Weights) -> bytes:
        if answer == "closed":
            return kube_scheduler.error_reply(NO_CARDS_NOW if asks(asked.pod) else NOT_NOW)
        passed = [True] * len(asked.names)
        if not asked.whole:
            return kube_scheduler.names_reply(asked, asked.names, passed, "")
        return kube_scheduler.nodes_reply(asked, passed, "")


class Prioritize(Question[Asked]):
    name: Verb = "prioritize"

    def __init__(self, reader: Reader, duty: Duty = "energy") -> None:
        self._reader = reader
        self.duty = duty

    def read(self, body: Body) -> Asked:
        return self._reader.read(body)

    def answer(self, asked: Asked, moment: Moment, weights: Weights) -> Answer:
        pod, names = asked.pod, asked.names
        roster = self._reader.roster_of(moment.twin_columns)
        candidates = names.candidates_on(moment.twin_columns)
        decision = decide.prioritize_decision(pod, candidates, names, moment, weights, self.duty)
        scores = decide.answered_scores(decision)
        reply = roster.scored(names.rows_on(moment.twin_columns), scores)
        if reply is not None:
            return Answer(decision, reply)
        return Answer(
            decision, kube_scheduler.prioritize_reply(names, scores), saved=names.repeated
        )

    def fallback(self, asked: Asked, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Neutral, in either case: there is no error here, and a failure would lose all scores."""
        neutral = 0 if self.duty == "gpu" else int(weights.neutral * weights.score_range / 100)
        scores = np.full(len(asked.names), neutral, np.int64)
        return kube_scheduler.prioritize_reply(asked.names, scores)


class Preempt(Question[Threatened]):
    name: Verb = "preempt"

    def __init__(
        self, duty: Duty = "energy", gpu_resources: tuple[str, ...] = GPU_RESOURCES
    ) -> None:
        self.duty = duty
        self._gpus = gpu_resources

    def read(self, body: Body) -> Threatened:
        return kube_scheduler.read_preempt(body, self._gpus)

    def answer(self, asked: Threatened, moment: Moment, weights: Weights) -> Answer:
        rows = asked.names.rows_on(moment.twin_columns)
        candidates = asked.names.candidates_on(moment.twin_columns)
        sent = Sent(self.duty, victims=self._holders(asked, moment))
        decision = decide.preempt_decision(asked.pod, candidates, rows, moment, weights, sent)
        return Answer(decision, kube_scheduler.preempt_reply(asked, decide.passed(decision)))

    def _holders(self, asked: Threatened, moment: Moment) -> tuple[str, ...]:
        if self.duty == "energy" or not asks(asked.pod):
            return ()
        holders = moment.twin_columns.cards.holders
        return tuple(sorted({uid for uid in kube_scheduler.victims_of(asked) if uid in holders}))

    def fallback(self, asked: Threatened, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Closed means that nobody is evicted."""
        return kube_scheduler.preempt_reply(asked, [answer == "open"] * len(asked.names))
