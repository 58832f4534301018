"""Business rules: points for node labels, for all pods or for a team, in the terms of a score."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask
from joulie_bus.events import PodAsk, Terms
from joulie_extender.catalogue.terms import points_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import (
    DecisionContext,
    again,
    decide_prioritize,
    prioritize_decision,
    rows_by_name,
)
from joulie_extender.protocol.candidates import candidates_of
from joulie_extender.settings import team_file
from joulie_extender.terms.preferences import Preference, Preferences, Team, label_scores, teams_in
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns

SPOT, FIXED = {"karpenter.sh/capacity-type": "spot"}, {"karpenter.sh/capacity-type": "on-demand"}
BOARD = TwinColumns.of(
    {
        "spot": NodeState(ordinal=0, at=NOON, labels=SPOT),
        "fixed": NodeState(ordinal=1, at=NOON, labels=FIXED),
        "plain": NodeState(ordinal=2, at=NOON),
    },
    0,
)
FILE = """
[[team]]
name = "research"
namespaces = ["lab"]
prefer = [{ label = "karpenter.sh/capacity-type", value = "spot", points = 20 }]

[[team]]
name = "payments"
prefer = [
  { label = "karpenter.sh/capacity-type", value = "on-demand", points = 30 },
  { label = "karpenter.sh/capacity-type", value = "spot", points = -10 },
]
"""
WEIGHTS = Weights(
    preferences=Preferences(label_scores("karpenter.sh/capacity-type=spot:5"), teams_in(FILE))
)


def terms(pod: PodAsk, weights: Weights = WEIGHTS) -> dict[str, Terms]:
    context = DecisionContext(BOARD, 1, 0, NOON)
    decision = decide_prioritize(pod, list(BOARD.rows), context, weights)
    assert again(decision, BOARD, weights) == decision
    return {each.node: each for each in decision.top}


def points(pod: PodAsk) -> list[float]:
    found = terms(pod)
    return [found[name].wishes for name in ("spot", "fixed", "plain")]


@pytest.mark.parametrize(
    ("team", "namespace", "expected"),
    [
        ("", "team", [5, 0, 0]),
        ("research", "team", [25, 0, 0]),
        ("", "lab", [25, 0, 0]),
        ("payments", "lab", [-5, 30, 0]),
        ("unknown", "lab", [5, 0, 0]),
    ],
    ids=["nobody's", "by label", "by namespace", "the label goes first", "another team"],
)
def test_a_pod_gets_the_points_of_all_teams_and_of_its_own(
    team: str, namespace: str, expected: list[float]
) -> None:
    assert points(replace(ask(), team=team, namespace=namespace)) == expected


def test_points_of_a_score_up_to_ten_are_a_tenth() -> None:
    names, context = list(BOARD.rows), DecisionContext(BOARD, 1, 0, NOON)
    candidates = candidates_of(names, rows_by_name(BOARD, names))
    pod = replace(ask(), team="payments")

    decided = prioritize_decision(pod, candidates, names, context, WEIGHTS, "gpu")
    found = {each.node: points_of(each, WEIGHTS) for each in decided.top}

    assert found["fixed"]["wishes"] == 3.0


def test_without_rules_there_is_no_such_term() -> None:
    assert {each.wishes for each in terms(ask(), Weights()).values()} == {0.0}


def test_labels_are_those_of_the_context_and_kept_while_they_are() -> None:
    moved = BOARD.updated([("spot", NodeState(ordinal=0, at=NOON, labels=FIXED))], 0)
    same = BOARD.updated([("spot", NodeState(ordinal=0, at=NOON + 1, labels=SPOT))], 0)

    assert same.labels is BOARD.labels
    assert [dict(moved.labels.of(row)) for row in (1, 2, 3)] == [FIXED, FIXED, {}]
    assert dict(BOARD.updated([("spot", None)], 0).labels.of(1)) == {}


def test_points_are_read_as_they_are_written() -> None:
    assert label_scores(" a/b=c:5 , d=e:f:-2.5 ") == (
        Preference("a/b", "c", 5.0),
        Preference("d", "e:f", -2.5),
    )
    assert label_scores("a=b:100,c=d:-100") == (
        Preference("a", "b", 100.0),
        Preference("c", "d", -100.0),
    )
    assert teams_in(FILE)[0] == Team(
        "research", ("lab",), (Preference("karpenter.sh/capacity-type", "spot", 20.0),)
    )


@pytest.mark.parametrize(
    "text", ["a", "a=b", "a=b:", "a=b:x", "=b:1", "a=:1", "a=b:101", "a=b:nan"]
)
def test_points_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="label=value:points"):
        label_scores(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[team]]", "name"),
        ("[[team]]\nname = 'a'\ncolour = 1", "colour"),
        ("colour = 1", "colour"),
        ("[[team]]\nname = 'a'\nprefer = [{label='l', value='v', points=1, colour=1}]", "colour"),
        ("[[team]]\nname = 'a'\n[[team]]\nname = 'a'", "two teams have one name"),
        ("[[team]]\nname = 'a'\nprefer = [{label='l', value='v', points=1000}]", "points"),
        ("team", "TOML|Expected"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        teams_in(text)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="No such file"):
        team_file("/nowhere/teams.toml")
