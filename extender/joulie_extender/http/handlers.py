"""What kube-scheduler can ask: how each question is read, answered, and answered without thought.

Pure but for what it remembers, which changes no answer.
"""

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from joulie_bus.events import Duty, FallbackAnswer, FilterDecided, PodAsk, Verb
from joulie_extender.debug.recent_answers import Answered
from joulie_extender.decide import decide
from joulie_extender.decide.decide import Sent
from joulie_extender.decide.scoring import Weights
from joulie_extender.decide.snapshot import Moment
from joulie_extender.foresight import Foreseen, Foresight
from joulie_extender.gpu.fit import asks
from joulie_extender.protocol import kube_scheduler
from joulie_extender.protocol.candidates import Names
from joulie_extender.protocol.exchange import Body
from joulie_extender.protocol.kube_scheduler import Asked, Reader, Threatened
from joulie_extender.rejections import Ground, Rejection, Rejections
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES

# In place of an answer; kube-scheduler shows it to users. No names, no numbers, no "%".
NOT_NOW = "the energy rules cannot be looked at right now and are set to refuse in that case"
NO_CARDS_NOW = "the GPU cards cannot be looked at right now and are set not to be given out then"

A = TypeVar("A", Asked, Threatened)


class Answer(NamedTuple):
    decision: Answered
    reply: bytes
    is_remembered: bool = False
    is_foreseen: bool = False
    saved: int = 0  # scores that would have been counted twice
    let_through: Names | None = None  # what prioritize will be asked about, if it is known


class Question(ABC, Generic[A]):
    """One verb."""

    name: Verb
    duty: Duty

    @abstractmethod
    def read(self, body: Body) -> A:
        """Raises BadRequest or BadQuantity."""

    @abstractmethod
    def answer(self, asked: A, moment: Moment, weights: Weights) -> Answer: ...

    def remember(self, asked: A, moment: Moment, weights: Weights, answer: Answer) -> None:
        """For whoever asks the same; nobody waits for it."""

    @abstractmethod
    def fallback(self, asked: A, answer: FallbackAnswer, weights: Weights) -> bytes:
        """Everything through, or nothing; of the candidates that were sent, like any answer."""


class Filter(Question[Asked]):
    name: Verb = "filter"

    def __init__(self, reader: Reader, duty: Duty = "energy") -> None:
        self._reader = reader
        self.duty = duty
        self._rejections = {asks_cards: Rejections() for asks_cards in (False, True)}

    def read(self, body: Body) -> Asked:
        return self._reader.read(body)

    def answer(self, asked: Asked, moment: Moment, weights: Weights) -> Answer:
        return self._known(asked, moment, weights) or self._thought(asked, moment, weights)

    def _known(self, asked: Asked, moment: Moment, weights: Weights) -> Answer | None:
        if asked.whole:
            return None
        known = self._rejections_of(asked.pod).find(asked.pod, asked.names, moment, weights)
        if known is None:
            return None
        decision = FilterDecided(
            pod=asked.pod,
            basis=decide.basis_of(moment, weights),
            candidates=asked.names.candidates_on(moment.twin_columns),
            verdicts=known.verdicts,
            reason=known.reason,
            duty=self.duty,
        )
        kept = self._reader.expect(known.kept)
        return Answer(decision, known.reply, is_remembered=True, let_through=kept)

    def _thought(self, asked: Asked, moment: Moment, weights: Weights) -> Answer:
        self._reader.roster_of(moment.twin_columns)
        rows = asked.names.rows_on(moment.twin_columns)
        candidates = asked.names.candidates_on(moment.twin_columns)
        sent = Sent(self.duty, asked.eco_labels)
        decision = decide.filter_decision(asked.pod, candidates, rows, moment, weights, sent)
        if not asked.whole and decide.all_passed(decision.verdicts):
            reply = kube_scheduler.names_reply(asked, asked.names, (), "")
            return Answer(decision, reply, let_through=asked.names)
        passed = decide.let_through(decision)
        if asked.whole:
            return Answer(decision, kube_scheduler.nodes_reply(asked, passed, decision.reason))
        kept = self._reader.expect(asked.names.where(passed))
        reply = kube_scheduler.names_reply(asked, kept, passed, decision.reason)
        return Answer(decision, reply, let_through=kept)

    def remember(self, asked: Asked, moment: Moment, weights: Weights, answer: Answer) -> None:
        """If it refused anybody; what it let through has room for more."""
        decision, kept = answer.decision, answer.let_through
        if kept is None or kept is asked.names or answer.is_remembered:
            return
        assert isinstance(decision, FilterDecided)
        ground = Ground.under(asked.pod, asked.names, moment, weights)
        rejection = Rejection(ground, decision.verdicts, decision.reason, answer.reply, kept)
        self._rejections_of(asked.pod).keep(asked.pod, asked.names, rejection)

    def _rejections_of(self, pod: PodAsk) -> Rejections:
        return self._rejections[asks(pod)]

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
        self.foresight = Foresight[Answer]()

    def read(self, body: Body) -> Asked:
        return self._reader.read(body)

    def answer(self, asked: Asked, moment: Moment, weights: Weights) -> Answer:
        foreseen = self.foresight.find(asked.pod, asked.names, moment.now)
        return foreseen or self._thought(asked.pod, asked.names, moment, weights)

    def foresee(self, pod: PodAsk, names: Names, moment: Moment, weights: Weights) -> None:
        answer = self._thought(pod, names, moment, weights)._replace(is_foreseen=True)
        self.foresight.keep(Foreseen(pod, names, moment.now, answer))

    def _thought(self, pod: PodAsk, names: Names, moment: Moment, weights: Weights) -> Answer:
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
