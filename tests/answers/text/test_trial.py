"""The sentences of a trial: what could sleep, by how much, if what, and what is not known."""

from typing import Any

import msgspec

from joulie_answers.text.trial import as_text
from joulie_simulator.trial.packing import Holder, Run, Trial

RUN = Run(
    nodes=[f"n{number}" for number in range(38)],
    watts_low=8_960.0,
    watts_high=13_210.0,
    unrated_nodes=0,
    placed_again=900,
    without_place=0,
    awake=[Holder("it has no controller that would replace it", 12, 14)],
)
TRIAL = Trial(
    nodes=123,
    candidates=120,
    left_out={"it belongs to the control plane": 3},
    pods=1000,
    waiting=0,
    stay={"it has no controller that would replace it": 14},
    with_nodes=86,
    unknown={},
    unknown_pods=0,
    rated_candidates=120,
    per_thread_w=(2.0, 6.0),
    minor=37,
    knows_namespaces=True,
    knows_budgets=True,
    pinned=RUN,
    free=RUN,
)


def text(run: dict[str, Any] | None = None, **changes: Any) -> str:
    pinned = msgspec.structs.replace(RUN, **(run or {}))
    return as_text(msgspec.structs.replace(TRIAL, **{"pinned": pinned, **changes}))


def test_the_first_sentence_has_the_nodes_the_watts_and_the_condition() -> None:
    assert text().splitlines()[0] == (
        "38 of 120 nodes could sleep now: 9.0 to 13 kW less, if the pods that run now were placed "
        "again by Joulie's score."
    )


def test_pods_with_something_unknown_have_a_sentence_of_their_own() -> None:
    free = msgspec.structs.replace(RUN, nodes=[*RUN.nodes, "n99"])
    found = text(unknown={"a scheduling gate": 2}, unknown_pods=2, free=free)

    assert "39 of 120 nodes could sleep now: 9.0 to 13 kW less, if 2 pods may move too" in found
    assert "not modelled: a scheduling gate (2)." in found


def test_no_number_stands_for_watts_that_are_not_known() -> None:
    nothing = text({"watts_low": None, "watts_high": None, "unrated_nodes": 38})
    some = text({"unrated_nodes": 2})

    assert "38 of 120 nodes could sleep now (of none of them is the power known), if" in nothing
    assert "kW less (without 2 of unknown power), if" in some


def test_lists_that_were_not_allowed_are_named() -> None:
    assert "could not be listed" not in text()
    assert "PodDisruptionBudgets could not be listed" in text(knows_budgets=False)
    assert "Namespaces could not be listed" in text(knows_namespaces=False)


def test_neither_waits_nor_a_month_are_claimed() -> None:
    assert "How long pods would wait, and what a month would save: that needs arrivals" in text()


def test_twenty_nodes_are_named_and_the_others_counted() -> None:
    assert "n19 and 18 more (-o json has all)" in text()
    assert "n20," not in text()


def test_a_name_cannot_write_to_the_terminal() -> None:
    found = text(
        {"nodes": ["n1\x1b[2J"], "awake": [Holder("a \x1b]0;x\x07Kind controls it", 1, 1)]}
    )

    assert "\x1b" not in found
    assert "\x07" not in found
