"""What is counted of a verb. kube-scheduler shows nothing of it: neither how slow we are, nor how
often it asks for one pod, nor that it lost our scores."""

from typing import Generic

from joulie_bus.runtime import metrics
from joulie_extender.debug.recent_answers import Seen
from joulie_extender.http.handlers import A, Answer, Question
from joulie_projections.pods.classify import UNKNOWN_ANNOTATION


class Counted(Generic[A]):
    """A verb with its counters; their labels are looked up once, not per call."""

    question: Question[A]

    def __init__(self, question: Question[A]) -> None:
        self.question = question
        name = question.name
        self.seconds = metrics.ANSWER_SECONDS.labels(verb=name)
        self.refused = metrics.ANSWERS.labels(verb=name, outcome="bad_request")
        self.fallen_back = metrics.ANSWERS.labels(verb=name, outcome="fallback")
        self._answered = metrics.ANSWERS.labels(verb=name, outcome="answered")
        self._repeated = metrics.ANSWERS_REPEATED.labels(verb=name)
        self._seen = Seen()

    def asked(self, asked: A) -> None:
        if asked.pod.rule == UNKNOWN_ANNOTATION:
            metrics.UNKNOWN_CLASS.inc()
        if asked.pod.uid and self._seen.again(asked.pod.uid):
            self._repeated.inc()

    def answered(self, answer: Answer) -> None:
        self._answered.inc()
        if answer.saved:
            metrics.SCORES_SAVED.inc(answer.saved)
