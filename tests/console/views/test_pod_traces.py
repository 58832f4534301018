"""The spans of decisions, without a collector."""

import time
from collections.abc import Sequence

from bus_kit import power
from joulie_bus.events import BindDecided, FallbackAnswered, OutcomeSeen
from joulie_bus.events.decisions import Basis
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_console.views.pod_traces import POD_SPAN, PodTraces, Span

MS = 1_000_000
NOON = 1_800_000_000_000_000_000
BASIS = Basis(view=7, view_age_ms=20, behind_ms=40, now=NOON, settings="s1")


def binding(uid: str = "u1", at: int = NOON, error: str = "") -> BindDecided:
    return BindDecided(
        pod_uid=uid,
        namespace="team",
        name="job",
        node="n1",
        basis=Basis(view=7, view_age_ms=20, behind_ms=40, now=at, settings="s1"),
        outcome="failed" if error else "bound",
        cards=["gpu-0"],
        error=error,
    )


def outcome(uid: str = "u1", rank: int | None = None, regret: int | None = None) -> OutcomeSeen:
    return OutcomeSeen(
        pod_uid=uid, namespace="team", name="job", node="n1", rank=rank, regret=regret
    )


class Entries:
    """Messages of one extender, each stored 20 ms after it was written."""

    def __init__(self) -> None:
        self.now = NOON
        self._sequence = 0
        self._producer = Producer("e0", Subjects("local"), lambda: self.now, "boot")

    def record(self, event: object, after_ms: int = 5, stored_ms: int = 20) -> Record:
        self.now += after_ms * MS
        return self.stored(self._producer.stamp(event), stored_ms)  # type: ignore[arg-type]

    def stored(self, message: Message, after_ms: int = 20) -> Record:
        self._sequence += 1
        at = self.now + after_ms * MS
        return Record(Stream.DEC, self._sequence, at, message.data, message.subject)


def spans(*records: Record, traces: PodTraces | None = None) -> Sequence[Span]:
    traces = traces or PodTraces()
    return [span for record in records for span in traces.spans_of(record)]


def test_the_span_of_a_pod_lasts_from_its_first_decision_to_its_binding() -> None:
    entries = Entries()

    failed, bound, whole = spans(
        entries.record(binding(error="no card")),
        entries.record(binding(at=NOON + 10 * MS)),
        entries.record(outcome(rank=2, regret=3), after_ms=40),
    )

    assert (whole.name, whole.start, whole.end) == (POD_SPAN, NOON, NOON + 70 * MS)
    assert [failed.parent, bound.parent, whole.parent] == [whole.id, whole.id, None]
    assert {failed.trace, bound.trace} == {whole.trace}
    assert (whole.attributes["joulie.rank"], whole.attributes["joulie.regret"]) == (2, 3)
    assert whole.attributes["joulie.complete"] is True
    assert (failed.error, bound.error) == ("no card", "")


def test_a_span_lasts_from_the_answers_clock_until_its_entry_was_written() -> None:
    entries = Entries()

    [span] = spans(entries.record(binding()))

    assert (span.name, span.start, span.end) == ("bind", NOON, NOON + 5 * MS)
    assert span.attributes == {
        "k8s.pod.uid": "u1",
        "k8s.namespace.name": "team",
        "k8s.pod.name": "job",
        "k8s.node.name": "n1",
        "joulie.entry": "e0:boot:1",
        "joulie.replica": "e0",
        "joulie.explanation": "bound to n1 with 1 card(s)",
        "joulie.view": 7,
        "joulie.view.behind_ms": 40,
        "joulie.cards": ["gpu-0"],
    }


def test_a_wrong_clock_makes_a_span_without_length() -> None:
    entries = Entries()

    before = spans(entries.record(binding(), after_ms=-1))[0]
    ahead = spans(entries.record(binding(), after_ms=5000, stored_ms=-4000))[0]

    assert (before.start, before.end) == (NOON, NOON)
    assert (ahead.start, ahead.end) == (NOON, NOON)


def test_the_same_entry_is_the_same_span_in_any_console() -> None:
    entries = Entries()
    record = entries.record(binding())

    one, other = spans(record), spans(record)
    [different] = spans(entries.record(binding()))

    assert one == other
    assert different.id != one[0].id


def test_a_pod_whose_decisions_were_not_read_has_a_span_without_length() -> None:
    entries = Entries()

    [span] = spans(entries.record(outcome()))

    assert span.start == span.end
    assert span.attributes["joulie.complete"] is False


def test_a_forgotten_pod_counts_as_one_whose_decisions_were_not_read() -> None:
    entries, traces = Entries(), PodTraces(most_pods=1)

    spans(entries.record(binding("u1")), entries.record(binding("u2")), traces=traces)
    first, second = spans(
        entries.record(outcome("u1")), entries.record(outcome("u2")), traces=traces
    )

    assert first.attributes["joulie.complete"] is False
    assert second.attributes["joulie.complete"] is True


def test_a_fallback_is_a_span_with_its_sentence() -> None:
    answered = FallbackAnswered(
        pod_uid="u1",
        namespace="team",
        name="job",
        verb="filter",
        why="overdue",
        answer="open",
        candidates=3,
        basis=BASIS,
    )

    [span] = spans(Entries().record(answered))

    assert span.name == "fallback"
    assert span.attributes["joulie.candidates"] == 3


def test_what_is_about_no_pod_and_what_is_no_entry_makes_no_span() -> None:
    entries = Entries()
    other = Producer("n1", Subjects("local"), time.time_ns).stamp(power("n1", 100))

    assert spans(entries.stored(other), Record(Stream.DEC, 9, NOON, b"\xc1 no entry")) == []
