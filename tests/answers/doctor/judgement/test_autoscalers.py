"""What `joulie doctor` says about cluster-autoscaler beside nodes that sleep."""

import pytest

from joulie_answers.doctor.judgement.autoscalers import (
    HALTS,
    REMOVES,
    Autoscaler,
    BesideSleepers,
    Sleepers,
    flags_in,
    judged,
)
from joulie_answers.doctor.judgement.findings import Finding, Level, Unseen

TEN = Sleepers(nodes=10, most=8, unprotected=["n1", "n2"])


def of(flags: str, nodes: Sleepers = TEN) -> dict[str, Finding]:
    seen = Autoscaler("kube-system/cluster-autoscaler", flags_in([flags]))
    return {each.check: each for each in judged(BesideSleepers([seen], nodes))}


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        pytest.param("", Level.WARN, id="the defaults"),
        pytest.param("--max-total-unready-percentage=80", Level.OK, id="enough percent"),
        pytest.param("--max-total-unready-percentage=79.9", Level.WARN, id="too few percent"),
        pytest.param("--ok-total-unready-count=8", Level.OK, id="a count of all that sleep"),
        pytest.param("--ok-total-unready-count=7", Level.WARN, id="a count of one less"),
        pytest.param("--ok-total-unready-count=$(COUNT)", Level.WARN, id="unknown"),
    ],
)
def test_it_stops_only_if_more_nodes_sleep_than_both_limits_allow(flags: str, level: Level) -> None:
    assert of(flags)[HALTS].level == level


def test_the_advice_leaves_as_many_nodes_to_break_as_before() -> None:
    assert "--ok-total-unready-count=11" in of("")[HALTS].advice
    assert "gets" in of("--ok-total-unready-count=$(COUNT)")[HALTS].seen


@pytest.mark.parametrize(
    ("flags", "unprotected", "level"),
    [
        ("", ["n1"], Level.WARN),
        ("", [], Level.OK),
        ("--scale-down-unready-enabled=false", ["n1"], Level.OK),
        ("--scale-down-enabled=false", ["n1"], Level.OK),
        ("--scale-down-unready-enabled --v=4", ["n1"], Level.WARN),
    ],
)
def test_it_removes_sleeping_nodes_of_its_groups_unless_they_are_annotated(
    flags: str, unprotected: list[str], level: Level
) -> None:
    found = of(flags, TEN._replace(unprotected=unprotected))[REMOVES]

    assert found.level == level
    assert ("n1" in found.seen) == (level is Level.WARN)


def test_without_sleep_nothing_is_said_and_without_a_right_it_is_not_seen() -> None:
    [unseen] = judged(Unseen("refused"))
    [none] = judged(BesideSleepers([]))

    assert judged(None) == []
    assert (unseen.level, none.level) == (Level.WARN, Level.OK)


@pytest.mark.parametrize(
    "words",
    [
        ["./cluster-autoscaler", "--v=4", "--ok-total-unready-count=20", "--scale-down-enabled"],
        ["sh", "-c", 'exec ./cluster-autoscaler --ok-total-unready-count="20" -scale-down-enabled'],
        ["./cluster-autoscaler", "--ok-total-unready-count", "20", "--scale-down-enabled", "--v=4"],
    ],
)
def test_flags_are_read_as_the_program_reads_them(words: list[str]) -> None:
    found = flags_in(words)

    assert found["ok-total-unready-count"] == "20"
    assert found["scale-down-enabled"] == "true"
