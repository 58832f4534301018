"""Nodes of a simulation that arrive late, fall silent, or leave."""

import pytest

from joulie_bus.events import GpuGone, GpuSeen, HardwareDiscovered, NodeGone, NodeSeen, PodGone
from joulie_simulator.engine import Engine
from joulie_simulator.odd_nodes import LATE_S, LEAVES_S, SILENT_FROM_S, SILENT_TO_S, OddNodes
from joulie_simulator.service import SimulatorOptions, engine_of

NAMES = [f"n{number}" for number in range(10)]
LATE, SILENT, LEAVING = "n7", "n8", "n9"


def test_without_odd_nodes_all_are_known_and_read_all_the_time() -> None:
    odd = OddNodes(NAMES)
    facts = [NodeSeen(node=name, uid=name) for name in NAMES]

    assert odd.known_at_start(facts) == facts
    assert (odd.arrived(LATE_S), odd.left(LEAVES_S)) == ([], ())
    assert odd.with_readings(NAMES, SILENT_FROM_S) == NAMES


def test_a_late_node_has_readings_first_and_its_object_and_hardware_later() -> None:
    odd = OddNodes(NAMES, 1)
    object_of, hardware_of = (
        NodeSeen(node=LATE, uid=LATE),
        HardwareDiscovered(
            node=LATE, cpu_model="", cpu_sockets=1, cpu_cores=8, cpu_max_mw_per_socket=1
        ),
    )
    card = GpuSeen(uuid="g", node=LATE, model="T4", total_mb=1)
    other = NodeSeen(node="n1", uid="n1")

    assert odd.known_at_start([other, object_of, hardware_of, card]) == [other]
    assert LATE in odd.with_readings(NAMES, 0.0)
    assert odd.arrived(LATE_S - 1) == []
    assert odd.arrived(LATE_S) == [object_of, hardware_of, card]
    assert odd.arrived(LATE_S) == []


def test_a_silent_node_has_no_readings_for_longer_than_they_count() -> None:
    odd = OddNodes(NAMES, 1)

    read = {at: SILENT in odd.with_readings(NAMES, at) for at in (0.0, SILENT_FROM_S, SILENT_TO_S)}
    assert read == {0.0: True, SILENT_FROM_S: False, SILENT_TO_S: True}
    assert SILENT in odd.there(NAMES)
    assert SILENT_TO_S - SILENT_FROM_S > 300


def test_a_node_that_leaves_is_there_until_then() -> None:
    odd = OddNodes(NAMES, 1)

    assert (odd.left(LEAVES_S - 1), odd.there([LEAVING])) == ((), [LEAVING])
    assert list(odd.left(LEAVES_S)) == [LEAVING]
    assert (list(odd.left(LEAVES_S)), odd.there(NAMES)) == ([], NAMES[:-1])


def busy_engine() -> Engine:
    """With a pod on every node that has room for one."""
    engine = engine_of(SimulatorOptions(nodes=8, pods_per_s=20), "r")
    engine.advance(engine.now_s + 60)
    for waiting in list(engine.waiting):
        for name in engine.cluster.sample(waiting.job):
            if not engine.cluster.nodes[name].running:
                engine.bind(waiting.job, name)
                break
    return engine


@pytest.mark.long
def test_a_node_leaves_with_its_cards_and_pods_and_takes_no_more() -> None:
    engine = busy_engine()
    name = next(each for each, node in engine.cluster.nodes.items() if node.running)
    node = engine.cluster.nodes[name]
    pods = [PodGone(uid=uid) for uid in node.running]

    facts = engine.lose(name)

    assert facts[: len(pods)] == pods
    assert facts[-1] == NodeGone(node=name)
    assert sum(isinstance(fact, GpuGone) for fact in facts) == node.shape.gpus
    assert not node.running
    assert all(name not in engine.cluster.sample(each.job) for each in engine.waiting)
    ended = engine.advance(engine.now_s + 10 * 86_400)
    assert not any(isinstance(fact, PodGone) and fact in pods for fact in ended)
