"""What simulated pods use, as their agents would publish it."""

from joulie_bus.events import PodsUsed, codec, unpacked_uid
from joulie_bus.events.bounds import MOST_USE_S
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.engine import MORNING_S, Engine, Options
from joulie_simulator.uses import EACH_S, LEAST_SHARE, MOST_SHARE, PEAK, Uses
from joulie_simulator.workload.workload import Job, Workload

JOB = Job("run-00000001", "cpu-run-1", "team", "", 4, 1000, 0, 1e9, 0.5)


class Run:
    """One pod that uses half of four cores."""

    def __init__(self, speed: float = 60.0) -> None:
        self.engine = Engine(SimCluster(3), Workload(1, "run"), Options(pods_per_s=1e-9))
        self.uses, self._speed, self._at_s = Uses(self.engine.cluster), speed, 0.0
        self.node = next(iter(self.engine.cluster.nodes))
        self.engine.bind(JOB, self.node)

    def seconds(self, count: float) -> list[PodsUsed]:
        found: list[PodsUsed] = []
        for _ in range(round(count)):
            self._at_s += 1
            now_s = MORNING_S + self._at_s * self._speed
            self.engine.advance(now_s)
            found += self.uses.facts(self.engine.cluster.nodes, now_s, self._at_s)
        return found


def test_a_pod_uses_the_processors_of_the_simulation_and_a_part_of_its_memory() -> None:
    [fact] = Run().seconds(EACH_S + 1)

    [line] = fact.pods
    assert (unpacked_uid(line.pod), line.seconds, line.cpu_milli) == (JOB.uid, 600, 2000)
    assert line.memory_mib is not None
    assert LEAST_SHARE <= line.memory_mib / JOB.memory_mib <= MOST_SHARE
    assert line.peak_mib == round(line.memory_mib * PEAK)
    assert codec.encode(fact)


def test_each_node_is_published_now_and_then_and_a_pod_keeps_its_share() -> None:
    facts = Run().seconds(5 * EACH_S)

    assert len(facts) == 4
    assert len({fact.pods[0].memory_mib for fact in facts}) == 1


def test_a_fast_simulation_stays_within_the_bound_of_a_line() -> None:
    [fact] = Run(speed=10_000).seconds(EACH_S + 1)
    assert [line.seconds for line in fact.pods] == [MOST_USE_S]
