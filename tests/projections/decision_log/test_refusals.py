"""The newest answers about pods: which pods were refused every node of the request."""

import pytest
from sqlalchemy import Engine

from bus_kit import ask, noon, records
from joulie_bus.events import (
    AnyEvent,
    Basis,
    BindDecided,
    Candidates,
    FilterDecided,
    PreemptDecided,
)
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.decision_log.refusals import read_refusals, refused_in
from joulie_projections.pods.refusal import Refusal
from joulie_projections.store.store import Store


def basis(now: int) -> Basis:
    return Basis(view=5, view_age_ms=3, now=now, settings="s")


def filtered(uid: str, verdicts: bytes, second: int = 0) -> FilterDecided:
    nodes = Candidates(ordinals=b"\1\0\0\0" * len(verdicts))
    return FilterDecided(
        pod=ask(uid), basis=basis(noon(second)), candidates=nodes, verdicts=verdicts
    )


def preempted(uid: str) -> PreemptDecided:
    nodes = Candidates(ordinals=b"")
    return PreemptDecided(pod=ask(uid), basis=basis(noon(9)), candidates=nodes, verdicts=b"")


def bound(uid: str) -> BindDecided:
    return BindDecided(
        pod_uid=uid, namespace="team", name=uid, node="n", basis=basis(noon(9)), outcome="bound"
    )


def logged(writer: Engine, *events: AnyEvent) -> None:
    Store(writer).acquire("me", 10, "i", lambda _: False)
    log = DecisionLog(writer)
    log.begin_empty(1)
    log.append(1, records(*events, name="x"), "then")


def test_a_pod_that_is_refused_every_node_is_found_with_its_first_answer(writer: Engine) -> None:
    logged(writer, filtered("a", b"\1\2", 3), filtered("b", b"\1\0"), filtered("a", b"\1\1\3", 7))
    assert read_refusals(writer, ["a", "b", "c"]) == [Refusal("a", 3, noon(3), 3)]


@pytest.mark.parametrize("later", [filtered("a", b"\0", 5), bound("a")], ids=["passed", "bound"])
def test_a_later_answer_ends_a_refusal(writer: Engine, later: AnyEvent) -> None:
    logged(writer, filtered("a", b"\1"), later)
    assert read_refusals(writer, ["a"]) == []


def test_an_answer_about_preemption_does_not_end_a_refusal(writer: Engine) -> None:
    logged(writer, filtered("a", b"\1"), preempted("a"))
    assert [each.uid for each in read_refusals(writer, ["a"])] == ["a"]


def test_other_pods_are_not_read(writer: Engine) -> None:
    logged(writer, filtered("a", b"\1"))
    assert read_refusals(writer, ["b"]) == []
    assert read_refusals(writer, []) == []


def test_an_entry_that_cannot_be_read_is_no_refusal() -> None:
    assert refused_in(b"from a newer version") == 0
