"""A period of a log again: the calibration is the error of its model."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from bus_kit import ask, hardware, node_seen, power
from bus_kit.pods import bound
from joulie_answers.report.form import Period
from joulie_answers.report.gather import Gathered
from joulie_answers.text.trial_of_log import as_text
from joulie_answers.trial_of_log.answer import Wanted, past_of, read_of
from joulie_answers.trial_of_log.metered import RunningHour
from joulie_answers.trial_of_log.settings import Change
from joulie_audit.ledger.pods_in_log import Lives
from joulie_bus.errors import NotTried
from joulie_bus.events import Fact, PlanMade, PodFinished, PodPending
from joulie_cli.ask.try_log import as_json
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.rules import Rules, values_of
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_simulator.energy.product import SAVING, WEIGHTS
from joulie_simulator.trial.past import Past

T0_S = 1_767_225_600  # a full hour
HOUR_S, READ_EACH_S = 3600, 30
NODES = ("n1", "n2", "n3", "n4")
IDLE_W, W_PER_CORE, USE = 200.0, 720 * 0.7 / 96, 0.5
CORES, EACH_S, LASTING_S = 24, 600, 1800


class Log(NamedTuple):
    """Six hours of four equal nodes; each pod runs on the next node for half an hour."""

    hours: int = 6
    read: Sequence[str] = NODES
    doubled_from_h: float | None = None  # from when on readings are twice as high
    plans: Rules | None = None
    managed: bool = True
    weights: Weights = WEIGHTS

    def facts(self) -> list[tuple[Fact, int]]:
        found: list[tuple[float, Fact]] = []
        for name in NODES:
            seen = node_seen(name) if self.managed else replace(node_seen(name), labels={})
            found += [(0, seen), (0, hardware(name))]
        if self.plans is not None:
            found.append((1, plan(self.plans)))
        for number, at in enumerate(range(60, self.hours * HOUR_S, EACH_S)):
            uid, node = f"p{number}", NODES[number % len(NODES)]
            found.append((at, PodPending(pod=ask(uid, cores=CORES))))
            found.append((at, bound(uid, node, cores=CORES)))
            found.append((at + LASTING_S, PodFinished(uid=uid)))
        found += self._readings()
        end_s = self.hours * HOUR_S
        ordered = sorted((each for each in found if each[0] <= end_s), key=lambda each: each[0])
        return [(fact, round((T0_S + at) * 1e9)) for at, fact in ordered]

    def _readings(self) -> list[tuple[float, Fact]]:
        found: list[tuple[float, Fact]] = []
        for number, name in enumerate(NODES):
            for at in range(0, self.hours * HOUR_S + 1, READ_EACH_S):
                starts = range(60 + number * EACH_S, self.hours * HOUR_S, EACH_S * len(NODES))
                runs = sum(start <= at < start + LASTING_S for start in starts)
                watts = IDLE_W + runs * CORES * W_PER_CORE * USE
                late = self.doubled_from_h is not None and at >= self.doubled_from_h * HOUR_S
                if name in self.read:
                    found.append((at, power(name, watts * (2 if late else 1))))
        return found


def plan(rules: Rules) -> PlanMade:
    made = PlanMade(plan="p1", policy=rules.policy, view=1, nodes=4, performance=0, changes=0)
    return replace(made, settings=values_of(rules))


def tried(log: Log, *changes: Change, seeds: int = 1) -> Past:
    state, lives = LedgerState(), Lives()
    facts = log.facts()
    state.ledger.fold(facts)
    for fact, at in facts:
        lives.fold(fact, at // 1_000_000)
    running, newest_ms = RunningHour.of(state), state.ledger.newest_ms
    state.ledger.end()
    minutes = [each for each in state.take_closed() if each.grain == "minutes"]
    period = Period(0, (T0_S + log.hours * HOUR_S) * 1000)
    got = Gathered(period, 0, Reading([]), state, lives, {}, {}, log.weights)
    read = read_of(got, minutes, running, newest_ms)
    return past_of(read, Wanted(log.hours * HOUR_S * 1000, seeds=seeds, changes=changes))


@pytest.fixture(scope="module")
def past() -> Past:
    return tried(Log())


def test_an_understood_world_gives_its_own_energy_in_the_half_that_was_not_fitted(
    past: Past,
) -> None:
    known = past.calibration

    assert known.is_apart
    assert known.judged.error == pytest.approx(0, abs=0.02)
    assert known.is_good
    assert past.use == pytest.approx((USE, USE), rel=0.05)
    assert known.hours.read_share == pytest.approx(1, abs=0.01)


@pytest.mark.long
def test_readings_that_double_make_the_calibration_warn() -> None:
    found = tried(Log(doubled_from_h=3))
    first, second, *_ = as_text(found).splitlines()

    assert found.calibration.judged.error == pytest.approx(-0.5, abs=0.02)
    assert first.startswith("Calibration: ")
    assert second.startswith("Do not trust the figures below: the error is above 5 %.")


def test_a_calibration_that_is_good_has_no_warning(past: Past) -> None:
    assert "Do not trust" not in as_text(past)
    assert as_text(past).startswith("Calibration: run again as it ran, ")


@pytest.mark.long
def test_nodes_without_readings_are_counted_and_are_in_neither_side() -> None:
    found = tried(Log(read=NODES[:3]))

    assert found.unknown.nodes_without_readings == 1
    assert found.calibration.judged.error == pytest.approx(0, abs=0.03)
    assert "hours of 3 of 4 nodes" in as_text(found)
    assert "1 node without readings" in as_text(found)


@pytest.mark.long
def test_the_rows_are_as_it_ran_each_preset_the_default_and_the_changes() -> None:
    change = Change("reserve=0.5", {"reserve": "0.5"}, numbers={"reserve": 0.5})
    found = tried(Log(plans=SAVING), change)
    rows = {row.name: row for row in found.rows}

    assert list(rows) == [
        *("as it ran", "PRESET=savings", "PRESET=headroom", "kube-scheduler", "reserve=0.5")
    ]
    hours = {name: row.middle("awake_node_hours") for name, row in rows.items()}
    assert hours["as it ran"] == hours["PRESET=savings"]
    assert hours["PRESET=savings"] < hours["reserve=0.5"] < hours["kube-scheduler"]
    assert hours["kube-scheduler"] == hours["PRESET=headroom"] == 4 * 6


def test_a_setting_that_lets_nodes_sleep_saves_and_does_the_same_work(past: Past) -> None:
    rows = {each["name"]: each for each in as_json(past)["rows"]}

    assert rows["as it ran"]["saved_share"] is None
    assert rows["kube-scheduler"]["saved_share"]["mid"] == 0
    assert rows["PRESET=savings"]["saved_share"]["mid"] > 0.2
    assert rows["PRESET=savings"]["work_share"] == pytest.approx(1, abs=0.01)


@pytest.mark.long
def test_nodes_that_plans_do_not_cover_stay_awake() -> None:
    found = tried(Log(plans=SAVING, managed=False))

    assert {row.middle("awake_node_hours") for row in found.rows} == {4 * 6}


@pytest.mark.long
def test_plans_that_are_not_carried_out_let_no_node_sleep() -> None:
    found = tried(Log(plans=SAVING._replace(dry_run=True)))

    assert found.as_it_ran.middle("awake_node_hours") == 4 * 6


@pytest.mark.long
def test_the_same_question_has_the_same_bytes(past: Past) -> None:
    again = tried(Log())

    assert msgspec.json.encode(as_json(again)) == msgspec.json.encode(as_json(past))
    assert as_text(again) == as_text(past)


@pytest.mark.long
def test_several_orders_give_the_middle_and_the_range() -> None:
    found = tried(Log(), seeds=2)

    assert [len(row.runs) for row in found.rows] == [2] * 4
    assert "Figures are the middle of 2 orders" in as_text(found)


def test_a_log_in_which_no_node_slept_says_that_sleep_is_not_calibrated(past: Past) -> None:
    assert not past.sleeps
    assert "how long it takes to wake up are not calibrated" in as_text(past)


@pytest.mark.parametrize(
    ("log", "changes", "why"),
    [
        (Log(read=()), [], "No node has readings"),
        (Log(plans=SAVING._replace(policy="mine")), [], "POLICY_TYPE=mine is of another package"),
        (
            Log(plans=Rules()),
            [Change("reserve=0.1", {}, numbers={"reserve": 0.1})],
            "Add --set POLICY_TYPE=consolidate_and_sleep",
        ),
    ],
    ids=["no readings", "a policy of another package", "a number that the policy does not read"],
)
def test_what_cannot_be_tried_is_one_clear_error(log: Log, changes: list[Change], why: str) -> None:
    with pytest.raises(NotTried, match=why):
        tried(log, *changes)
