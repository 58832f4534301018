"""Conditions as events: each begins once and ends once."""

from bus_kit import NOON
from joulie_console.views.conditions import Condition, S, log_invalid
from joulie_console.views.occurrences import ENDS_S, LASTS_S, Event, Occurrences

STALE = Condition("view.stale", "cluster", "serious", "It is old.")
LOST = Condition("node.not-woken", "n1", "serious", "Not ready.", "1000")
STEP_S = 5


def events(tracked: Occurrences, found: list[Condition], first_s: int, last_s: int) -> list[Event]:
    """Of a look every five seconds."""
    return [
        event
        for second in range(first_s, last_s + 1, STEP_S)
        for event in tracked.update(found, NOON + second * S)
    ]


def test_a_condition_begins_once_it_has_lasted_and_ends_once_it_was_absent() -> None:
    tracked, lasts_s = Occurrences("c1"), LASTS_S["node.not-woken"]

    before = events(tracked, [LOST], 0, lasts_s - STEP_S)
    [begun] = events(tracked, [LOST], lasts_s, 600)
    again = events(tracked, [], 605, 600 + ENDS_S - STEP_S)
    [ended] = events(tracked, [], 600 + ENDS_S, 1200)

    assert before == again == []
    assert (begun.type, begun.id) == (
        "io.joulie.node.not-woken.begun",
        "node.not-woken/n1/1000/begun",
    )
    assert (ended.type, ended.id) == (
        "io.joulie.node.not-woken.ended",
        "node.not-woken/n1/1000/ended",
    )
    assert (begun.tree["time"], ended.tree["time"]) == (
        "2030-03-17T17:46:40.000+00:00",
        "2030-03-17T17:56:40.000+00:00",
    )


def test_a_condition_that_comes_and_goes_is_one_occurrence() -> None:
    tracked = Occurrences("c1")
    found = [
        event
        for round_ in range(20)
        for event in (
            *events(tracked, [LOST], round_ * 60, round_ * 60 + 30),
            *events(tracked, [], round_ * 60 + 35, round_ * 60 + 55),
        )
    ]

    assert [event.type.rpartition(".")[2] for event in found] == ["begun"]


def test_what_does_not_last_is_not_reported() -> None:
    tracked = Occurrences("c1")

    assert events(tracked, [STALE], 0, 30) + events(tracked, [], 35, 600) == []


def test_two_consoles_give_an_occurrence_the_same_id_and_source() -> None:
    here, there = Occurrences("c1"), Occurrences("c1")

    ours = events(here, [LOST, STALE], 60, 180)
    theirs = events(there, [LOST, STALE], 62, 182)

    assert [event.id for event in ours] == [event.id for event in theirs]
    assert {event.tree["source"] for event in (*ours, *theirs)} == {"/joulie/c1"}


def test_a_later_occurrence_has_another_id() -> None:
    tracked = Occurrences("c1")

    first = events(tracked, [STALE], 0, 100) + events(tracked, [], 105, 200)
    second = events(tracked, [STALE], 1000, 1100) + events(tracked, [], 1105, 1200)

    assert len({event.id for event in (*first, *second)}) == 4


def test_an_event_has_what_cloudevents_require() -> None:
    tracked = Occurrences("a cluster/é")
    [begun] = events(tracked, [log_invalid("Entry 7 differs.", "7")], 0, 60)

    assert begun.tree == {
        "specversion": "1.0",
        "id": "log.invalid/decisions/7/begun",
        "source": "/joulie/a%20cluster%2F%C3%A9",
        "type": "io.joulie.log.invalid.begun",
        "subject": "decisions",
        "time": begun.tree["time"],
        "datacontenttype": "application/json",
        "data": {"level": "serious", "text": "Entry 7 differs.", "change": "begun"},
    }
    assert begun.tree["time"].endswith("+00:00")
