"""What prioritize will be asked is thought of beforehand, of the moment of filter's answer."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender_kit import PATIENT, performing, request, saving, snapshot_of
from joulie_bus.events import DecisionEntry, FilterDecided, PrioritizeDecided
from joulie_bus.runtime import metrics
from joulie_bus.testing import NOON, SECOND
from joulie_extender.app import Extender
from joulie_extender.decide import again
from joulie_extender.exchange import Reply
from joulie_extender.foresight import HOLDS_MS, MISSES, PODS, RARELY
from joulie_extender.routes import Verb
from joulie_extender.scoring import Weights
from joulie_extender.verbs import Prioritize
from joulie_projections.view.view import ViewSnapshot

MILLISECOND = SECOND // 1000
NAMES = ["n0", "n1", "n2"]


BEFORE = snapshot_of(performing("n0", 0, 100), performing("n1", 1, 200), saving("n2", 2))
AFTER = snapshot_of(
    performing("n0", 0, 300), performing("n1", 1, 200), saving("n2", 2), position=18
)


def asked(uid: str = "u1", names: list[str] = NAMES, workload: str = "standard") -> bytes:
    annotations = {"joulie.io/workload-class": workload}
    pod = {"metadata": {"name": "p", "uid": uid, "annotations": annotations}}
    body = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(body, separators=(",", ":")).encode()


class Scheduling:
    """An extender, and a loop that is turned by hand."""

    def __init__(self, *, foresees: bool = True) -> None:
        self.seen, self.now = BEFORE, NOON
        self.recorded: list[DecisionEntry] = []
        self.postponed: list[Callable[[], None]] = []
        self.extender = Extender(
            lambda: self.seen, self.recorded.append, Weights(), lambda: self.now, conduct=PATIENT
        )
        self.extender.later = self.postponed.append
        self._foresees = foresees

    def turn(self) -> None:
        while self.postponed:
            self.postponed.pop(0)()

    def filter(self, body: bytes = asked()) -> bytes:
        return self._answered(self.extender.filter, body)

    def prioritize(self, body: bytes = asked()) -> bytes:
        return self._answered(self.extender.prioritize, body)

    def _answered(self, verb: Verb, body: bytes) -> bytes:
        reply = verb(request(body))
        if self._foresees:
            self.turn()
        assert isinstance(reply, Reply)
        return reply.body

    def is_foreseen(self, body: bytes = asked()) -> bool:
        before = foreseen()
        self.prioritize(body)
        self.turn()
        return foreseen() > before


def foreseen() -> float:
    return metrics.shown_by("extender").get_sample_value("joulie_answers_foreseen_total") or 0.0


def test_what_filter_let_through_is_scored_before_it_is_asked_for() -> None:
    scheduling = Scheduling()
    scheduling.filter()

    assert scheduling.is_foreseen()


def test_of_a_pod_that_was_refused_some_nodes_the_rest_is_scored() -> None:
    scheduling = Scheduling()
    let_through = json.loads(scheduling.filter(asked(workload="performance")))["NodeNames"]

    assert let_through == ["n0", "n1"]
    assert scheduling.is_foreseen(asked(names=let_through, workload="performance"))


def test_nothing_is_thought_of_before_the_reply_of_filter_is_given() -> None:
    scheduling = Scheduling(foresees=False)
    scheduling.filter()

    assert not scheduling.is_foreseen()


def test_an_answer_that_was_foreseen_is_recorded_when_it_is_given_and_not_before() -> None:
    scheduling = Scheduling()
    scheduling.filter()
    assert [type(entry) for entry in scheduling.recorded] == [FilterDecided]

    scheduling.prioritize()
    assert [type(entry) for entry in scheduling.recorded] == [FilterDecided, PrioritizeDecided]


def test_an_answer_is_given_once_and_then_thought_of_anew() -> None:
    scheduling = Scheduling()
    scheduling.filter()

    assert [scheduling.is_foreseen(), scheduling.is_foreseen()] == [True, False]


@pytest.mark.parametrize(
    "body",
    [asked(uid="u2"), asked(names=["n1", "n0", "n2"]), asked(workload="performance")],
    ids=["another pod", "another list", "another class"],
)
def test_another_question_is_thought_about_when_it_is_asked(body: bytes) -> None:
    scheduling = Scheduling()
    scheduling.filter()

    assert not scheduling.is_foreseen(body)


@pytest.mark.parametrize("later_ms", [HOLDS_MS + 1, -1], ids=["too late", "the clock went back"])
def test_at_another_time_the_question_is_thought_about_when_it_is_asked(later_ms: int) -> None:
    scheduling = Scheduling()
    scheduling.filter()
    scheduling.now = NOON + later_ms * MILLISECOND

    assert not scheduling.is_foreseen()


def test_both_answers_of_a_pod_rest_on_one_moment_though_the_view_goes_on() -> None:
    scheduling, still = Scheduling(), Scheduling(foresees=False)
    for each in (scheduling, still):
        each.filter()
    scheduling.seen, scheduling.now = AFTER, NOON + HOLDS_MS * MILLISECOND

    assert scheduling.prioritize() == still.prioritize()
    assert scheduling.recorded == still.recorded

    assert scheduling.prioritize() != still.prioritize(), "asked again, it is another moment"


def test_a_single_node_is_not_thought_of_beforehand() -> None:
    scheduling = Scheduling()
    scheduling.filter(asked(names=["n0"]))

    assert not scheduling.is_foreseen(asked(names=["n0"]))


def test_several_pods_are_thought_of_at_a_time() -> None:
    scheduling = Scheduling()
    bodies = [asked(uid=f"u{number}") for number in range(PODS)]
    for body in bodies:
        scheduling.filter(body)

    assert all(map(scheduling.is_foreseen, bodies))


def test_where_nobody_asks_for_scores_they_are_hardly_ever_thought_of() -> None:
    scheduling, few = Scheduling(), PODS + MISSES
    for number in range(few):
        scheduling.filter(asked(uid=f"early-{number}"))
    scheduling.filter(asked(uid="passed by"))
    assert not scheduling.is_foreseen(asked(uid="passed by"))

    for number in range(RARELY):
        scheduling.filter(asked(uid=f"late-{number}"))
    found = [scheduling.is_foreseen(asked(uid=f"late-{number}")) for number in range(RARELY)]

    assert found.count(True) == 1
    scheduling.filter()
    assert scheduling.is_foreseen(), "somebody asks again, so it is worth it again"


def test_a_thought_that_fails_beforehand_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("not now")

    scheduling = Scheduling()
    monkeypatch.setattr(Prioritize, "foresee", fail)
    scheduling.filter()

    assert not scheduling.is_foreseen()
    assert json.loads(scheduling.prioritize())


steps = st.lists(
    st.tuples(
        st.sampled_from(["filter", "prioritize"]),
        st.sampled_from(
            [asked(), asked("u2"), asked(workload="performance"), asked(names=["n1", "n2"])]
        ),
        st.sampled_from([BEFORE, AFTER]),
    ),
    max_size=12,
)


@given(steps=steps)
@settings(deadline=None, max_examples=60)
def test_whatever_is_asked_each_answer_is_that_of_the_moment_that_it_says(
    steps: list[tuple[str, bytes, ViewSnapshot]],
) -> None:
    foreseeing = Scheduling()
    for verb, body, seen in steps:
        foreseeing.seen = seen
        reply = getattr(foreseeing, verb)(body)

        entry = foreseeing.recorded[-1]
        assert isinstance(entry, FilterDecided | PrioritizeDecided)
        then = Scheduling(foresees=False)
        then.seen = {each.position: each for each in (BEFORE, AFTER)}[entry.basis.view]
        assert getattr(then, verb)(body) == reply
        assert then.recorded == [entry]
        assert again(entry, then.seen.twin_columns, Weights()) == entry
