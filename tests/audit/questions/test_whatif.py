"""The same past under other settings: who would have won, and at what price."""

import inspect
from xml.etree import ElementTree

import pytest

from joulie_audit.questions import score_changes, whatif
from joulie_audit.questions.plot import svg
from joulie_audit.questions.score_changes import Compared, Shift, compared
from joulie_audit.questions.whatif import Other, what_if
from joulie_audit.testing import Past
from joulie_bus.events import Terms
from joulie_extender.decide.scoring import Weights
from joulie_operator.planning.rules import Rules

pytestmark = pytest.mark.anyio


async def asked(past: Past, other: Other) -> Compared:
    async with past.reading() as (history, facts):
        return await what_if(history, facts, other)


async def test_nothing_different_changes_nothing(small: Past) -> None:
    found = await asked(small, Other(weights=lambda then: then, rules=lambda then: then))

    assert (found.all.decisions, found.all.changed, found.shifts) == (4, 0, [0.0] * 4)
    assert found.all.watts_before == found.all.watts_after


async def test_another_bonus_moves_those_whom_it_concerns(small: Past) -> None:
    found = await asked(small, Other(weights=lambda then: then._replace(eco_bonus=-50.0)))

    assert [(shift.pod, shift.before.node, shift.after.node) for shift in found.changes] == [
        ("team/late-1", "n3", "n1")
    ]
    assert found.by_class["performance"].changed == 0


async def test_another_policy_changes_classes_from_its_first_look_on(small: Past) -> None:
    def all_performance(then: Rules) -> Rules:
        return then._replace(static_hp_frac=1.0)

    found = await asked(small, Other(rules=all_performance))

    assert found.all.decisions == 4
    assert [shift != 0 for shift in found.shifts] == [False, False, True, False]
    assert [change.after.bonus for change in found.changes] == [0.0]


async def test_other_caps_push_winners_over_them(small: Past) -> None:
    def tight(then: Rules) -> Rules:
        return then._replace(cpu_performance_pct=10, cpu_eco_pct=10)

    found = await asked(small, Other(rules=tight))

    assert (found.all.over_cap_before, found.all.over_cap_after) == (0, 1)


async def test_a_part_of_the_log_is_asked_alone(small: Past) -> None:
    async with small.reading() as (history, facts):
        found = await what_if(history, facts, Other(weights=lambda _: Weights()), first=13)

    assert found.all.decisions == 2


async def test_an_empty_log_gives_an_empty_report(past: Past) -> None:
    found = await asked(past, Other())

    assert (found.all.decisions, found.by_class, found.changes) == (0, {}, [])


@pytest.mark.parametrize("module", [whatif, score_changes], ids=lambda module: module.__name__)
def test_nothing_of_it_can_publish(module: object) -> None:
    source = inspect.getsource(module)  # type: ignore[arg-type]

    assert "joulie_bus.streams.log" not in source
    assert "jetstream" not in source
    assert "Producer" not in source


# --- the report -------------------------------------------------------------------------------


def terms(node: str, score: float, watts: float) -> Terms:
    zero = dict.fromkeys(("headroom", "cooling", "trend", "bonus", "pressure", "draining"), 0.0)
    return Terms(node=node, score=score, marginal_w=watts, source="measured", **zero)


def shift(pod: str, before: Terms, after: Terms, *, workload: str = "standard") -> Shift:
    return Shift(1, f"team/{pod}", "team", workload, before, after, False, True, 2.0, 1.0)


def test_sums_stand_beside_the_work_that_they_are_for() -> None:
    found = compared(
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


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(compared([]), id="of nothing"),
        pytest.param(
            compared([shift("a", terms("n1", 50, 10), terms("n2", 60, 8))]), id="of one pod"
        ),
    ],
)
def test_the_picture_is_well_formed_whatever_the_title(found: Compared) -> None:
    drawn = svg(found, 'what if "A<B" & more')

    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert 'what if "A<B" & more' in {element.text for element in root}


def test_every_decision_is_in_the_picture() -> None:
    found = compared([shift("a", terms("n1", 50, 10), terms("n2", 50 + at, 8)) for at in range(5)])

    bars = [
        float(line.split('height="')[1].split('"')[0])
        for line in svg(found, "t").splitlines()
        if line.startswith("<rect x")
    ]
    assert sum(bar > 0 for bar in bars) == 5 + 2  # five heights of shifts, two of watts
