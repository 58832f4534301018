"""Metrics of a verb. kube-scheduler exposes none of them: latency, repeated calls for one pod, and
scores that would have been counted twice.
"""

from typing import Generic

from joulie_bus.runtime import metrics
from joulie_extender.debug.recent_answers import RecentPods
from joulie_extender.verbs.handlers import A, Answer, VerbHandler
from joulie_projections.pods.classify import UNKNOWN_ANNOTATION


class MeteredVerb(Generic[A]):
    """A verb handler with its metrics; label lookups happen once, not per call."""

    handler: VerbHandler[A]

    def __init__(self, handler: VerbHandler[A]) -> None:
        self.handler = handler
        name = handler.name
        self.seconds = metrics.ANSWER_SECONDS.labels(verb=name)
        self.refused = metrics.ANSWERS.labels(verb=name, outcome="bad_request")
        self.fallen_back = metrics.ANSWERS.labels(verb=name, outcome="fallback")
        self._answered = metrics.ANSWERS.labels(verb=name, outcome="answered")
        self._repeated = metrics.ANSWERS_REPEATED.labels(verb=name)
        self._seen = RecentPods()

    def asked(self, asked: A) -> None:
        if asked.pod.rule == UNKNOWN_ANNOTATION:
            metrics.UNKNOWN_CLASS.inc()
        if asked.pod.uid and self._seen.seen_before(asked.pod.uid):
            self._repeated.inc()

    def answered(self, answer: Answer) -> None:
        self._answered.inc()
        if answer.saved:
            metrics.SCORES_SAVED.inc(answer.saved)
