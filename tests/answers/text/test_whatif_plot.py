"""Plots of commands: axes with round values, and every value in them."""

from typing import Any
from xml.etree import ElementTree

import pytest

from joulie_answers.text import whatif_plot
from joulie_audit.recompute.score_changes import Comparison, ScoreChange, compare_changes
from joulie_bus.events import Terms


def change(
    at: int, *, watts: float = 8.0, score: float = 1.0, same_scale: bool = True
) -> ScoreChange:
    names = ("headroom", "cooling", "trend", "bonus", "pressure", "draining")
    zero: dict[str, Any] = dict.fromkeys(names, 0.0)
    before = Terms(node="n1", score=50.0, marginal_w=0.0, source="measured", **zero)
    after = Terms(node="n2", score=50.0 + score, marginal_w=0.0, source="measured", **zero)
    return ScoreChange(
        entry=at,
        pod=f"team/{at}",
        namespace="team",
        workload="standard",
        before=before,
        after=after,
        same_scale=same_scale,
        watts_before=10.0,
        watts_after=watts,
        over_cap_before=False,
        over_cap_after=True,
        cores=2.0,
        gpus=1.0,
    )


def drawn(found: Comparison, title: str = "t") -> ElementTree.Element:
    return ElementTree.fromstring(whatif_plot.of(found, title))


@pytest.mark.parametrize("changes", [[], [change(1)]], ids=["no decisions", "one decision"])
def test_the_plot_is_well_formed_with_any_title(changes: list[ScoreChange]) -> None:
    root = drawn(compare_changes(changes), 'what if "A<B" & more')

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert 'what if "A<B" & more' in {element.text for element in root}


def test_every_decision_is_in_the_plot_with_its_value_under_the_pointer() -> None:
    found = compare_changes([change(at, score=float(at)) for at in range(5)])

    says = [each.text or "" for each in drawn(found).iterfind(".//{*}title")]
    counted = [int(each.split()[-2]) for each in says if each.endswith("decisions")]
    assert sum(counted) == 5
    assert "+3.90 to +4.10 points: 1 decisions" in says
    assert says[-2:] == ["standard: 50.0 W", "standard: 40.0 W"]


def test_the_axes_of_the_plot_have_units() -> None:
    labels = {element.text for element in drawn(compare_changes([change(1)]))}

    assert {"change of the best score, in points", "decisions"} <= labels
    assert {"class of the pods", "watts added and kept on, of the best nodes, in sum"} <= labels


def test_scores_of_two_scales_are_not_plotted() -> None:
    root = drawn(compare_changes([change(1, same_scale=False)]))

    labels = {element.text for element in root}
    assert "change of the best score: no decision has both scores on one scale" in labels
