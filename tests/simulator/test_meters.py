"""Simulated nodes publish in the agent's encoding and at its pace, with their true energy."""

import pytest

from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.reporter import Moment
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.engine import MORNING_S, Engine, Options
from joulie_simulator.meters import Meters
from joulie_simulator.workload.workload import Job, Workload

SPEED = 60.0


class Run:
    """Nodes without pods of their own; one second of real time is a minute."""

    def __init__(self, nodes: int = 20, lost: float = 0.0) -> None:
        self.engine = Engine(SimCluster(nodes), Workload(1, "run"), Options(pods_per_s=1e-9))
        self.meters = Meters(1, SPEED, lost)
        self.readings: list[TelemetrySampled] = []
        self._at_s = 0

    def seconds(self, count: int, *, are_due: bool = False) -> list[TelemetrySampled]:
        found: list[TelemetrySampled] = []
        for _ in range(count):
            self.engine.advance(MORNING_S + self._at_s * SPEED)
            sampled = self.engine.sample(self.engine.cluster.nodes)
            moment = Moment(float(self._at_s), 1 + self._at_s)
            found += self.meters.readings(sampled, moment, are_due=are_due)
            self._at_s += 1
        return found

    def with_cards(self) -> str:
        return next(n for n, node in self.engine.cluster.nodes.items() if node.shape.gpus == 8)


JOB = Job("u", "u", "team", "", 8, 1024, 8, 1e9, 0.9)


def test_a_steady_node_is_published_each_ten_seconds() -> None:
    run = Run(nodes=5)
    assert len(run.seconds(31)) == 4 * 5


def test_a_step_of_load_is_published_with_the_next_sample() -> None:
    run = Run()
    run.seconds(3)
    run.engine.bind(JOB, run.with_cards())
    (reading,) = run.seconds(1)
    assert reading.node == run.with_cards()


def test_two_readings_differ_by_the_energy_that_the_node_used_between_them() -> None:
    """At half of the time its load begins, and one sample shows it; time is 60 times as fast."""
    run, node = Run(), Run().with_cards()
    (before,) = [each for each in run.seconds(1) if each.node == node]
    idle_w = run.engine.cluster.nodes[node].watts(20.0)
    run.engine.advance(MORNING_S + 30)
    run.engine.bind(JOB, node)
    busy_w = run.engine.cluster.nodes[node].watts(20.0)
    (after,) = run.seconds(1)

    used_j = (after.energy_uj - before.energy_uj) / 1e6
    assert used_j == pytest.approx((idle_w + busy_w) / 2, rel=0.01)
    assert after.counted_from == before.counted_from
    assert sum(after.card_uj) < after.energy_uj


def test_the_counter_of_a_node_goes_on_while_it_sleeps() -> None:
    run, node = Run(), Run().with_cards()
    (before,) = [each for each in run.seconds(1) if each.node == node]
    run.engine.order_power([(node, True)])
    (after,) = [each for each in run.seconds(2) if each.node == node]

    assert after.counted_from == before.counted_from
    assert (after.energy_uj - before.energy_uj) / 1e6 == pytest.approx(80.0, rel=0.01)
    assert set(after.card_mw.values()) == {0}


@pytest.mark.parametrize(("lost", "least", "most"), [(0, 2000, 2010), (1, 0, 0), (0.1, 1750, 1850)])
def test_some_readings_are_lost(lost: float, least: int, most: int) -> None:
    readings = Run(lost=lost).seconds(991)
    assert least <= len(readings) <= most
    assert all(each.power_mw for each in readings)


def test_with_an_end_all_nodes_are_published() -> None:
    run = Run(nodes=5, lost=1.0)
    assert run.seconds(3) == []
    assert len(run.seconds(1, are_due=True)) == 5
