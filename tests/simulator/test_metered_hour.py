"""An hour of the demo: what the ledger has of it, beside what the simulated nodes have used."""

import random
from collections import Counter
from typing import NamedTuple

import pytest

from bus_kit.clock import NOON
from joulie_bus.events import Fact, GpuSeen, PodBound, TelemetrySampled
from joulie_bus.metering.reporter import Moment
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.report import report_of
from joulie_projections.state.cards import UNKNOWN_HOLDER
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.engine import MORNING_S, Engine, Options
from joulie_simulator.meters import Meters
from joulie_simulator.workload.workload import Workload

NODES, SPEED, HOUR_S = 10, 60.0, 3600
WITH_SHARED = 19  # one of these nodes shares its cards in time
NS = 10**9


class Hour(NamedTuple):
    true_j: float
    meter_j: float
    pods_and_idle_j: float
    unknown_ms: int
    nodes: dict[str, "NodeHour"] = {}  # noqa: RUF012


class NodeHour(NamedTuple):
    """One node: what it has used, and what the ledger has of it."""

    true_j: float
    pods_j: float
    idle_j: float
    shared: int  # pods that got a card which others had, too


def an_hour(
    *, lost: float, with_counters: bool, nodes: int = NODES, pods_per_s: float = 0.02
) -> Hour:
    """In real time, which is sixty hours of the simulated cluster; readings each second are sampled
    and published at the agent's pace."""
    engine = Engine(SimCluster(nodes), Workload(5, "run"), Options(5, pods_per_s=pods_per_s))
    on_nodes, shared = dict[str, str](), Counter[str]()
    meters, ledger, draw = Meters(5, SPEED, lost), Ledger(), random.Random(5)
    before_j: dict[str, float] = {}
    for second in range(HOUR_S):
        facts: list[Fact] = engine.initial_facts() if second == 0 else []
        facts += engine.advance(MORNING_S + second * SPEED)
        facts += placed(engine)
        on_nodes |= {f.pod.name: f.node for f in facts if isinstance(f, PodBound)}
        shared.update(
            f.node for f in facts if isinstance(f, GpuSeen) and f.holder == UNKNOWN_HOLDER
        )
        sampled = engine.sample(engine.cluster.nodes)
        before_j = before_j or {each.node: each.energy_j for each in sampled}
        is_end = second in (0, HOUR_S - 1)
        facts += meters.readings(sampled, Moment(float(second), 1 + second), are_due=is_end)
        at = NOON + second * NS + draw.randrange(NS // 100)
        ledger.fold((fact if with_counters else plain(fact), at) for fact in facts)
    ledger.end()
    hours = [each for each in ledger.closed if each.grain == "hour"]
    found = report_of(hours, "pod")
    true_j = {
        name: (node.energy_j - before_j[name]) / SPEED
        for name, node in engine.cluster.nodes.items()
    }
    shares = sum(share.pods_uj + share.idle_uj for share in found.by.values())
    pods_j, idle = Counter[str](), report_of(hours, "node").by
    for name, share in found.by.items():
        pods_j[on_nodes.get(name.partition("/")[2], "")] += share.pods_uj / 1e6  # type: ignore[assignment]
    each = {
        name: NodeHour(used_j, pods_j[name], idle[name].idle_uj / 1e6, shared[name])
        for name, used_j in true_j.items()
    }
    return Hour(sum(true_j.values()), found.meter_uj / 1e6, shares / 1e6, found.unknown_ms, each)


def placed(engine: Engine) -> list[Fact]:
    facts: list[Fact] = []
    for _ in range(len(engine.waiting)):
        waiting = engine.waiting.popleft()
        names = engine.cluster.sample(waiting.job)
        if names:
            facts += engine.bind(waiting.job, names[0])
    return facts


def plain(fact: Fact) -> Fact:
    """As a sender without counters would publish it."""
    if not isinstance(fact, TelemetrySampled):
        return fact
    return TelemetrySampled(node=fact.node, power_mw=fact.power_mw, card_mw=fact.card_mw)


@pytest.mark.slow
@pytest.mark.long
def test_the_ledger_of_an_hour_is_the_meter_within_half_a_percent() -> None:
    hour = an_hour(lost=0.01, with_counters=True)
    print(hour)

    assert hour.pods_and_idle_j == pytest.approx(hour.meter_j, rel=1e-9)
    assert hour.meter_j == pytest.approx(hour.true_j, rel=0.0001)
    assert hour.unknown_ms == 0


@pytest.mark.slow
@pytest.mark.long
def test_lost_readings_make_no_difference_with_counters() -> None:
    """With half of all readings lost, powers alone are off by more."""
    counted = an_hour(lost=0.5, with_counters=True)
    by_power = an_hour(lost=0.5, with_counters=False)
    print(counted, by_power)

    assert counted.meter_j == pytest.approx(counted.true_j, rel=0.0001)
    assert abs(by_power.meter_j - by_power.true_j) > 20 * abs(counted.meter_j - counted.true_j)


@pytest.mark.slow
@pytest.mark.long
def test_pods_and_idle_of_each_node_are_its_meter_where_pods_share_cards() -> None:
    hour = an_hour(lost=0.01, with_counters=True, nodes=WITH_SHARED, pods_per_s=0.05)

    shared = {name: node for name, node in hour.nodes.items() if node.shared}
    print(shared)
    assert len(shared) == 1
    assert min(node.shared for node in shared.values()) > 20
    assert min(node.pods_j for node in shared.values()) > 0
    for name, node in hour.nodes.items():
        assert node.pods_j + node.idle_j == pytest.approx(node.true_j, rel=0.005), name
