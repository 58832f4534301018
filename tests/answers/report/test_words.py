"""A report in words, and where pods are beside the best node of their answer."""

from typing import Any

import pytest

from bus_kit import ask
from joulie_answers.report.document import EXAMPLES, placements_of
from joulie_answers.report.form import Period
from joulie_answers.report.gather import Answer, Gathered, Ranked
from joulie_answers.report.words import placements, sentence, text_of
from joulie_audit.ledger.pods_in_log import Lives, PodLife
from joulie_extender.catalogue.weights import Weights
from joulie_projections.energy.report import Reading, report_of
from joulie_projections.energy.saved import LedgerState

SHARE = {"low": 0.2, "mid": 0.25, "high": 0.3}
SAME = dict.fromkeys(SHARE, 0.6801)


def report(
    *, saved: dict[str, Any] | None = None, share: dict[str, float] = SHARE, as_it_ran: bool = True
) -> dict[str, Any]:
    figures = {"kwh": 2.0, "pods_kwh": 1.5, "idle_kwh": 0.5, "cost": None, "kgco2e": 0.75}
    return {
        "asked": {"from": 0, "to": 3_600_000},
        "complete_to": 3_600_000,
        "energy": {
            "namespace": {
                "meter_kwh": 2.5,
                "cost": None,
                "kgco2e": 0.75,
                "currency": "",
                "by": [{"namespace": f"team-{at}", **figures} for at in range(25)],
            }
        },
        "placements": {
            "bound": 9,
            "answered": 8,
            "on_the_best_node": 5,
            "elsewhere": 2,
            "without_a_rank": 1,
        },
        "counterfactual": {
            "as_it_ran": as_it_ran,
            "policy": "joulie-energy",
            "saved": {"share_per_work": share},
        },
        "saved": saved,
    }


def metered(low: float, mid: float, high: float) -> dict[str, Any]:
    return {"kwh": {"low": low, "mid": mid, "high": high}, "cost": None, "kgco2e": None}


@pytest.mark.parametrize(
    ("saved", "share", "text"),
    [
        (metered(1, 2, 3), SHARE, "that is 2.000 kWh saved (1.000 kWh to 3.000 kWh): 25.0% less"),
        (metered(2, 2, 2), SAME, "that is 2.000 kWh saved (2.000 kWh): 68.0% less per work."),
        (metered(-3, -2, -1), dict.fromkeys(SHARE, -0.1), "2.000 kWh more used"),
    ],
)
def test_the_sentence_has_the_figure_of_the_metered_energy(
    saved: dict[str, Any], share: dict[str, float], text: str
) -> None:
    found = sentence(report(saved=saved, share=share))

    assert found.startswith("The meters measured 2.500 kWh, 0.75 kgCO2e. Against the same pods")
    assert text in found


def test_of_a_shadow_nothing_was_saved() -> None:
    found = sentence(report(as_it_ran=False))

    assert "without any plan of Joulie" in found
    assert "use 25.0% less (20.0% less to 30.0% less) per work" in found
    assert "saved" not in found


def test_without_a_comparison_it_is_not_known_what_was_saved() -> None:
    assert sentence(report()).endswith("What was saved is not known.")


def test_the_text_of_a_terminal_is_short_and_says_what_it_leaves_out() -> None:
    lines = text_of(report(saved=metered(1, 2, 3)) | {"complete_to": 0}).splitlines()

    assert len(lines) < 35
    assert lines[1] == "Incomplete: later energy is missing."
    assert "  and 5 more" in lines
    assert lines[-1] == (
        "9 pods were bound, 8 of them with an answer. Of 7 whose node was ranked, 5 are on the "
        "best node or on one that ties with it, and 2 elsewhere. 1 have no rank: their node was "
        "no candidate, or the log has no outcome yet."
    )


# --- placements ---------------------------------------------------------------------------------


def gathered(ranks: dict[str, Ranked], pods: int) -> Gathered:
    lives = Lives()
    lives.first_ms = 1
    uids = [f"p{at:03}" for at in range(pods)]
    lives.pods = {uid: PodLife(ask(uid), 1, "n1", 2) for uid in uids}
    answers = {uid: Answer("n9", 7) for uid in uids}
    none = Reading([])
    return Gathered(Period(0, 10), 9, none, LedgerState(), lives, answers, ranks, Weights())


def placed(ranks: dict[str, Ranked], pods: int) -> dict[str, Any]:
    whole = report_of([], "namespace")._replace(from_ms=0, to_ms=10)
    return placements_of(gathered(ranks, pods), whole)


def test_rank_decides_what_is_the_best_node_and_not_its_name() -> None:
    """The answer named n9 first, and n1 tied with it."""
    found = placed({"p000": Ranked("n1", 1, 0), "p001": Ranked("n1", 4, 12)}, 3)

    assert (found["bound"], found["answered"]) == (3, 3)
    assert (found["on_the_best_node"], found["elsewhere"], found["without_a_rank"]) == (1, 1, 1)
    assert found["furthest"] == [
        {
            "pod": "team/p001",
            "node": "n1",
            "rank": 4,
            "behind": 12,
            "best": "n9",
            "position": 7,
        }
    ]


def test_those_furthest_behind_are_listed_and_all_are_counted() -> None:
    found = placed({f"p{at:03}": Ranked("n1", 2, at) for at in range(120)}, 120)

    assert (found["elsewhere"], len(found["furthest"])) == (120, EXAMPLES)
    assert [each["behind"] for each in found["furthest"][:2]] == [119, 118]
    assert "120 elsewhere" in placements(found)
