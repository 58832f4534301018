"""The output of `joulie plans --defragment`."""

import json

from joulie_answers.defragment_in_cluster import judged_by, ordered
from joulie_answers.text.defragment import defragment_text
from joulie_answers.views.defragment import NOT_ASKED, carried_out, defragment_of
from joulie_extender.defragment.plan import DefragmentationPlan, PlannedMove, Staying
from joulie_extender.defragment.search import Budget, Summary
from joulie_operator.power.disruptions import Allowed, Disruptions
from joulie_operator.power.move_outcomes import Ordered, Outcome

BEFORE = Summary(4.0, 4.0, 4.0, 0, 0, 0)
AFTER = Summary(4.0, 0.0, 0.5, 4, 1, 1)
MOVE = PlannedMove("u", "team/p", "n0", "n1", 94.0, 0.0, 3.5, "n0 had no cores")


def report(*moves: PlannedMove) -> dict[str, object]:
    stays = [Staying("it is of class performance", 7, ("team/a", "team/b"))]
    return defragment_of(DefragmentationPlan(12, BEFORE, AFTER, moves, stays), [NOT_ASKED])


def test_the_text_says_what_is_moved_what_it_brings_and_what_stays() -> None:
    lines = defragment_text(report(MOVE, MOVE), 1).splitlines()

    assert lines[0] == "A plan to make free GPUs usable: 2 of 12 pods would move"
    assert "4.00 GPUs free, 4.00 of no use" in lines[1]
    assert "4.00 GPUs of use that were of none; 3.50 more" in lines[3]
    assert "+4 whole cards, +1 linked groups, +1 nodes" in lines[3]
    assert lines[4] == "  cost       2 pods begin again, with 0.00 GPUs and 188.0 cores"
    assert lines[5].strip() == ("1. team/p from n0, would fit on n1 (+3.50 GPUs): n0 had no cores")
    assert lines[6].strip() == "and 1 more: --limit 2"
    assert lines[7] == "  stay       7: it is of class performance (team/a, team/b, ...)"
    assert "PodDisruptionBudgets" in lines[8]


def test_without_moves_it_says_so() -> None:
    assert "no move gains a tenth of a GPU" in defragment_text(report(), 20)


def test_the_report_is_json() -> None:
    found = json.loads(json.dumps(report(MOVE)))

    assert found["cost"] == {"pods": 1, "cores": 94.0, "gpus": 0.0}
    assert found["moves"][0]["would_fit"] == "n1"


def test_budgets_of_the_api_server_limit_the_plan() -> None:
    found = judged_by(Disruptions({"u": "why"}, [Allowed("team/b", 1, frozenset("u"))]))

    assert found.stays == {"u": "why"}
    assert found.budgets == [Budget("team/b", 1, frozenset("u"))]


def test_of_a_plan_that_was_carried_out_each_move_has_its_outcome() -> None:
    outcomes = [
        Outcome("moved", "n1"),
        Outcome("moved", "n2"),
        Outcome("moved", "n0"),
        Outcome("kept", why="a budget keeps it"),
    ]
    found = carried_out(report(MOVE, MOVE, MOVE, MOVE), outcomes, ["n0 stays cordoned"])
    lines = defragment_text(found, 1).splitlines()

    assert lines[7] == "  carried out 3 of 4 moves, 1 to the planned node"
    assert [line.strip() for line in lines[8:12]] == [
        "team/p from n0: moved to n1, as planned",
        "team/p from n0: moved to n2 instead of n1",
        "team/p from n0: moved to n0: its node again",
        "team/p from n0: kept: a budget keeps it",
    ]
    assert lines[-1] == "  note       n0 stays cordoned."
    assert json.loads(json.dumps(found))["moves"][3]["outcome"]["what"] == "kept"


def test_an_order_names_the_pod_and_why_it_moves() -> None:
    assert ordered(MOVE)._replace(note="") == Ordered("u", "team", "p", "n0", "")
    assert "free GPUs are of use: n0 had no cores. It would fit on n1" in ordered(MOVE).note
