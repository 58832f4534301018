import msgspec
import pytest

from bus_kit import CLUSTER, VirtualClock, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import BrokerRefused
from joulie_bus.streams.subjects import Stream
from joulie_operator.desired.kubernetes_events import event_of
from joulie_operator.facts.facts_from_objects import ChangeFilter, Node, NodeKind
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.fact_publisher import FactPublisher
from joulie_operator.observe.watch import ObservedCluster
from joulie_operator.resources.custom_resources import (
    MANAGER,
    Condition,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    ObjectMeta,
)

pytestmark = pytest.mark.anyio


def node(name: str, version: str, **labels: str) -> Node:
    meta = {"name": name, "resourceVersion": version, "labels": labels}
    return msgspec.convert({"metadata": meta}, Node)


def cache() -> ObjectCache[Node]:
    return ObjectCache[Node](lambda it: it.metadata)


def test_an_older_event_does_not_replace_a_newer_response() -> None:
    seen, newer = cache(), node("n1", "10", a="new")
    seen.put(newer)
    seen.put(node("n1", "9", a="old"))

    assert seen.get("n1") is newer


def test_a_cache_of_nodes_keeps_labels_and_only_the_own_manager() -> None:
    meta = {"name": "n1", "uid": "u", "resourceVersion": "10", "labels": {"a": "b"}}
    managers = {"managedFields": [{"manager": "kubelet"}, {"manager": MANAGER}]}
    status = {"allocatable": {"cpu": "96"}, "conditions": [{"type": "Ready", "status": "True"}]}
    nodes = ObservedCluster.empty().nodes
    nodes.put(msgspec.convert({"metadata": meta | managers, "status": status}, Node))
    kept = meta | {"managedFields": [{"manager": MANAGER}]}

    assert nodes.get("n1") == msgspec.convert({"metadata": kept}, Node)


def test_nodetwins_with_equal_conditions_share_them() -> None:
    twins = ObservedCluster.empty().twins
    for name in ("n1", "n2"):
        status = NodeTwinStatus(
            schedulable_class="eco", conditions=[Condition(type="Planned", status="True")]
        )
        twins.put(NodeTwin(metadata=ObjectMeta(name=name), status=status))
    one, other = twins.get("n1"), twins.get("n2")

    assert one is not None
    assert one.status is not None
    assert other is not None
    assert other.status is not None
    assert one.status == other.status
    assert one.status.conditions is other.status.conditions


async def test_objects_missing_from_a_complete_list_are_removed() -> None:
    seen = cache()
    seen.put(node("n1", "1"))
    seen.begin_list()
    await seen.add_listed([node("n2", "2")])
    before = (sorted(seen.names()), seen.complete.is_set())
    await seen.end_list()

    assert before == (["n1", "n2"], False)
    assert (seen.names(), seen.complete.is_set()) == (["n2"], True)


async def test_a_fact_that_was_not_stored_is_published_again() -> None:
    broker = MemoryBroker(CLUSTER, VirtualClock())
    log = MemoryLog(broker)
    facts = FactPublisher([ChangeFilter[Node](NodeKind(), {})], log, producer())
    broker.fill(Stream.OBS)
    with pytest.raises(BrokerRefused):
        await facts.add_listed([node("n1", "1")])
    broker.stream(Stream.OBS).limit = None
    await facts.add_listed([node("n1", "1")])

    assert (await log.state(Stream.OBS)).last == 1


SAVING = NodeTwinSpec(node_name="n1", profile="eco")


@pytest.mark.parametrize(
    ("before", "note"),
    [
        (None, "unplanned to eco"),
        (NodeTwinSpec(node_name="n1", profile="performance"), "performance to eco"),
        (SAVING, None),
    ],
)
def test_an_event_is_made_for_transitions_only(
    before: NodeTwinSpec | None, note: str | None
) -> None:
    event = event_of(ObjectMeta(name="n1", uid="u"), before, SAVING, 0)

    assert (event and event["note"]) == note
