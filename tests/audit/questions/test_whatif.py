"""Recorded decisions under other settings: the best nodes and the sums."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from audit_kit import RecordedLog
from joulie_audit.questions import whatif
from joulie_audit.questions.whatif import Overrides, what_if
from joulie_audit.recompute import score_changes
from joulie_audit.recompute.score_changes import Comparison, ScoreChange, compare_changes
from joulie_bus.events import Terms
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.rules import Rules

pytestmark = pytest.mark.anyio


async def asked(recorded: RecordedLog, overrides: Overrides) -> Comparison:
    async with recorded.reading() as (history, facts):
        return await what_if(history, facts, overrides)


async def test_equal_settings_change_no_decision(small_log: RecordedLog) -> None:
    found = await asked(small_log, Overrides(weights=lambda then: then, rules=lambda then: then))

    assert (found.all.decisions, found.all.changed, found.score_deltas) == (4, 0, [0.0] * 4)
    assert found.all.watts_before == found.all.watts_after


async def test_another_bonus_changes_only_the_pods_that_it_applies_to(
    small_log: RecordedLog,
) -> None:
    found = await asked(small_log, Overrides(weights=lambda then: replace(then, eco_bonus=-50.0)))

    assert [(shift.pod, shift.before.node, shift.after.node) for shift in found.changes] == [
        ("team/late-1", "n3", "n1")
    ]
    assert found.by_class["performance"].changed == 0


async def test_another_policy_changes_classes_from_its_first_plan_on(
    small_log: RecordedLog,
) -> None:
    def all_performance(then: Rules) -> Rules:
        return then._replace(static_hp_frac=1.0)

    found = await asked(small_log, Overrides(rules=all_performance))

    assert found.all.decisions == 4
    assert [shift != 0 for shift in found.score_deltas] == [False, False, True, False]
    assert [change.after.bonus for change in found.changes] == [0.0]


async def test_tighter_caps_count_best_nodes_over_their_cap(small_log: RecordedLog) -> None:
    def tight(then: Rules) -> Rules:
        return then._replace(cpu_performance_pct=10, cpu_eco_pct=10)

    found = await asked(small_log, Overrides(rules=tight))

    assert (found.all.over_cap_before, found.all.over_cap_after) == (0, 1)


async def test_a_range_of_the_log_is_compared_alone(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, facts):
        found = await what_if(history, facts, Overrides(weights=lambda _: Weights()), first=13)

    assert found.all.decisions == 2


async def test_an_empty_log_gives_an_empty_report(recorded: RecordedLog) -> None:
    found = await asked(recorded, Overrides())

    assert (found.all.decisions, found.by_class, found.changes) == (0, {}, [])


@pytest.mark.parametrize("module", [whatif, score_changes], ids=lambda module: module.__name__)
def test_the_module_cannot_publish(module: object) -> None:
    source = inspect.getsource(module)  # type: ignore[arg-type]

    assert "joulie_bus.log.protocol" not in source
    assert "jetstream" not in source
    assert "Producer" not in source


# --- the report -------------------------------------------------------------------------------


def terms(node: str, score: float, watts: float) -> Terms:
    names = ("headroom", "cooling", "trend", "bonus", "pressure", "draining")
    zero: dict[str, Any] = dict.fromkeys(names, 0.0)
    return Terms(node=node, score=score, marginal_w=watts, source="measured", **zero)


def shift(pod: str, before: Terms, after: Terms, *, workload: str = "standard") -> ScoreChange:
    return ScoreChange(1, f"team/{pod}", "team", workload, before, after, False, True, 2.0, 1.0)


def test_sums_include_the_requested_cores_and_gpus() -> None:
    found = compare_changes(
        [
            shift("a", terms("n1", 50, 10), terms("n2", 60, 8)),
            shift("b", terms("n1", 50, 10), terms("n1", 40, 10), workload="performance"),
        ]
    )

    assert found.all._asdict() == {
        "decisions": 2,
        "cores": 4.0,
        "gpus": 2.0,
        "changed": 1,
        "score_shift": 0.0,
        "watts_before": 20.0,
        "watts_after": 18.0,
        "over_cap_before": 0,
        "over_cap_after": 2,
    }
    groups = list(found.by_class), list(found.by_namespace)
    assert groups == (["performance", "standard"], ["team"])
