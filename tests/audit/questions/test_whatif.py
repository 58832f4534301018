"""Recorded decisions under other settings: the best nodes and the sums."""

import gc
import inspect
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from audit_kit import RecordedLog, record_small_log
from bus_kit import ask, power
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.questions import whatif
from joulie_audit.questions.whatif import UNKNOWN_SETTINGS, Overrides, Period, what_if
from joulie_audit.recompute import score_changes
from joulie_audit.recompute.score_changes import Comparison, ScoreChange, compare_changes
from joulie_bus.errors import NotInTheLog, SettingsError
from joulie_bus.events import Terms
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_cli.ask.whatif import as_json, as_text, other_of
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.rules import Rules
from joulie_projections.fold.manifest import Manifest

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
        found = await what_if(history, facts, Overrides(weights=lambda _: Weights()), Period(13))

    assert found.all.decisions == 2


async def test_a_sample_has_so_many_scored_pods_and_says_so(small_log: RecordedLog) -> None:
    other = Overrides(weights=lambda then: replace(then, eco_bonus=-50.0))
    async with small_log.reading() as (history, facts):
        whole = await what_if(history, facts, other)
        found = await what_if(history, facts, other, Period(sample=2))

    assert (whole.all.decisions, found.all.decisions, found.step) == (4, 2, 2)
    assert "This is a sample: one of each 2 scored pods." in str(as_text({}, found))
    assert "sample" not in str(as_text({}, whole))


async def test_a_period_is_folded_from_the_snapshot_before_it(small_log: RecordedLog) -> None:
    """Other rules are not: each of their plans depends on those before it."""
    begins = small_log.builder.snapshot() + 1
    await small_log.builder.facts(power("n1", 99))
    await small_log.builder.answer(ask("later"))
    weights = Overrides(weights=lambda then: replace(then, eco_bonus=-50.0))

    async with small_log.reading() as (history, facts):
        noting = Noting(facts)
        found = await what_if(history, noting, weights, Period(begins))
        begun, noting.read = noting.read[0], []
        await what_if(history, noting, Overrides(rules=lambda then: then), Period(begins))

    assert found.all.decisions == 1
    assert (begun, noting.read[0]) == (begins, 1)


class Noting:
    """Facts, and the first position of each batch that was read."""

    def __init__(self, facts: FactSource) -> None:
        self._facts = facts
        self.read: list[int] = []

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        self.read.append(manifest.p_from)
        return await self._facts.of(manifest, streams)


async def test_an_empty_log_gives_an_empty_report(recorded: RecordedLog) -> None:
    found = await asked(recorded, Overrides())

    assert (found.all.decisions, found.by_class, found.changes) == (0, {}, [])


async def test_an_end_in_the_middle_leaves_no_error_about_a_closed_database(
    small_log: RecordedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """The entries that were not read are forgotten after the database is closed."""

    def fail(_: Weights) -> Weights:
        raise NotInTheLog("facts have aged out")

    with pytest.raises(NotInTheLog) as ended:
        await asked(small_log, Overrides(weights=fail))
    ended.value.__traceback__ = None
    del ended
    gc.collect()

    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("module", [whatif, score_changes], ids=lambda module: module.__name__)
def test_the_module_cannot_publish(module: object) -> None:
    source = inspect.getsource(module)  # type: ignore[arg-type]

    assert "joulie_bus.log.protocol" not in source
    assert "jetstream" not in source
    assert "Producer" not in source


# --- the report -------------------------------------------------------------------------------


def terms(node: str, score: float) -> Terms:
    names = ("headroom", "cooling", "trend", "bonus", "pressure", "draining", "marginal_w")
    zero: dict[str, Any] = dict.fromkeys(names, 0.0)
    return Terms(node=node, score=score, source="measured", **zero)


class Best(NamedTuple):
    node: str
    score: float
    watts: float | None


def shift(
    pod: str, before: Best, after: Best, *, workload: str = "standard", same_scale: bool = True
) -> ScoreChange:
    return ScoreChange(
        entry=1,
        pod=f"team/{pod}",
        namespace="team",
        workload=workload,
        before=terms(before.node, before.score),
        after=terms(after.node, after.score),
        same_scale=same_scale,
        watts_before=before.watts,
        watts_after=after.watts,
        over_cap_before=False,
        over_cap_after=True,
        cores=2.0,
        gpus=1.0,
    )


TWO_SHIFTS = [
    shift("a", Best("n1", 50, 10), Best("n2", 60, 8)),
    shift("b", Best("n1", 50, 10), Best("n1", 40, 10), workload="performance"),
]


def test_sums_include_the_requested_cores_and_gpus() -> None:
    found = compare_changes(TWO_SHIFTS)

    assert found.all._asdict() == {
        "decisions": 2,
        "cores": 4.0,
        "gpus": 2.0,
        "changed": 1,
        "score_shift": 0.0,
        "watts_before": 20.0,
        "watts_after": 18.0,
        "watts_unknown": 0,
        "over_cap_before": 0,
        "over_cap_after": 2,
    }
    groups = list(found.by_class), list(found.by_namespace)
    assert groups == (["performance", "standard"], ["team"])


def test_scores_of_two_scales_are_neither_subtracted_nor_shown() -> None:
    other = shift("c", Best("n1", 100, 70), Best("n3", 41, 90), same_scale=False)
    alone, beside = compare_changes([other]), compare_changes([*TWO_SHIFTS, other])

    assert (alone.all.score_shift, alone.score_deltas) == (None, [])
    assert (beside.all.score_shift, beside.score_deltas) == (0.0, [10.0, -10.0])
    text = as_text({"scoring": "headroom"}, beside)
    assert "team/a: n1 50.0 -> n2 60.0" in text
    assert "team/c: n1 70 W -> n3 90 W" in text
    assert "The scores of 1 pods are not compared: each value of scoring has a scale" in text
    assert as_json({}, alone)["all"]["score_shift"] is None


def test_unknown_watts_are_no_watts() -> None:
    unknown = shift("c", Best("n1", 50, None), Best("n3", 41, 90))
    found = compare_changes([*TWO_SHIFTS, unknown])

    assert (found.all.watts_before, found.all.watts_after, found.all.watts_unknown) == (20, 18, 1)
    text = as_text({"scoring": "headroom"}, found)
    assert "1 pods are not in the watts: a best node had no fresh data." in text


# --- from watts to headroom -----------------------------------------------------------------------


async def by_watts(recorded: RecordedLog) -> None:
    recorded.builder.weights = Weights(scoring="energy", preset="savings")
    await record_small_log(recorded)


async def test_watts_are_counted_alike_whatever_the_scores_are_of(recorded: RecordedLog) -> None:
    """The best nodes by watts are those that add and keep on least, so no other setting finds
    less: activation counts on both sides."""
    await by_watts(recorded)
    found = await asked(recorded, Overrides(weights=lambda then: replace(then, scoring="headroom")))

    assert (found.all.decisions, found.all.score_shift) == (4, None)
    assert found.changes
    for change in found.changes:
        later = change.before.later
        assert later.activation_w > 0
        assert change.watts_before == pytest.approx(change.before.marginal_w + later.activation_w)
    assert found.all.watts_before <= found.all.watts_after


async def test_decisions_of_unknown_settings_are_counted_and_left_out(
    small_log: RecordedLog,
) -> None:
    small_log.builder.weights = Weights(cooling=0.3)  # which no entry declares
    await small_log.builder.answer(ask("later"))
    found = await asked(small_log, Overrides(weights=lambda then: then))

    assert (found.all.decisions, found.left_out) == (4, {UNKNOWN_SETTINGS: 1})
    text = as_text({"scoring": "headroom"}, found)
    assert "1 scored pods were left out: their settings are not in the log" in text


def test_a_misspelled_setting_gets_similar_names() -> None:
    with pytest.raises(SettingsError) as refused:
        other_of({"SCORE_TREND_SCLAE": "3"})

    assert "SCORE_TREND_SCLAE: not a setting of scores or plans, so nothing was" in str(
        refused.value
    )
    assert "similar names are SCORE_TREND_SCALE" in str(refused.value)
