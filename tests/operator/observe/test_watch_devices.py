"""The facts about devices of a large cluster are published in windows."""

import asyncio
from typing import cast

import msgspec
import pytest

from bus_kit import CLUSTER, VirtualClock
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import BrokerRefused
from joulie_bus.events import DeviceSeen, codec
from joulie_bus.log.producer import Producer
from joulie_bus.streams.subjects import Stream
from joulie_operator.facts.devices import DeviceObjects
from joulie_operator.facts.facts_from_objects import NodeFilter, NodeKind, PodFilter, PodKind
from joulie_operator.facts.hardware_inventory import Inventory, hardware_filters
from joulie_operator.observe.watch_devices import WINDOW, DevicePublisher, Filters
from joulie_operator.resources.device_objects import ResourceSlice
from joulie_projections.state.state import ClusterState
from kube_devices import eight, resource_slice

pytestmark = pytest.mark.anyio
NODES = 2 * WINDOW // 8 + 1  # the cards of all are more than two windows


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(CLUSTER, VirtualClock())


@pytest.fixture
def publisher(broker: MemoryBroker) -> DevicePublisher:
    """Each kind was listed."""
    objects, state, inventory = DeviceObjects(), ClusterState(), Inventory()
    hardware, _ = hardware_filters(
        inventory.catalog, state, lambda *_: None, inventory.gpus, objects
    )
    filters = Filters(
        NodeFilter(NodeKind(devices=objects), {}),
        hardware,
        PodFilter(PodKind(devices=objects), {}),
    )
    bus, producer = MemoryLog(broker), Producer("operator-obs", CLUSTER, lambda: 0)
    made = DevicePublisher(objects, filters, bus, producer, state)
    made.unlisted.clear()
    return made


def put_slices(publisher: DevicePublisher, nodes: int, *, taint: str = "") -> None:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    for name in (f"n{at:04d}" for at in range(nodes)):
        tree = resource_slice(name, [each | {"taints": taints} for each in eight(name)])
        tree["metadata"]["uid"] = name
        publisher.objects.put_slice(msgspec.convert(tree, ResourceSlice))


def published(broker: MemoryBroker) -> list[DeviceSeen]:
    records = broker.stream(Stream.OBS).records
    return [cast(DeviceSeen, codec.decoded(record.data, "")) for record in records]


async def test_others_get_their_turn_between_the_windows(
    broker: MemoryBroker, publisher: DevicePublisher
) -> None:
    put_slices(publisher, NODES)
    publishing = asyncio.create_task(publisher.publish())

    seen = set[int]()
    while not publishing.done():
        await asyncio.sleep(0)
        seen.add(len(published(broker)))

    assert {WINDOW, 2 * WINDOW, 8 * NODES} <= seen


async def test_what_changes_between_two_windows_is_published_last(
    broker: MemoryBroker, publisher: DevicePublisher
) -> None:
    put_slices(publisher, NODES)
    publishing = asyncio.create_task(publisher.publish())
    while not published(broker):
        await asyncio.sleep(0)

    put_slices(publisher, NODES, taint="broken")
    await asyncio.gather(publishing, publisher.publish())

    newest = {fact.card: fact.taint for fact in published(broker)}
    assert len(newest) == 8 * NODES
    assert set(newest.values()) == {"broken"}


async def test_what_a_full_stream_refused_is_published_once_there_is_room(
    broker: MemoryBroker, publisher: DevicePublisher
) -> None:
    put_slices(publisher, NODES)
    broker.stream(Stream.OBS).limit = WINDOW + 1
    with pytest.raises(BrokerRefused):
        await publisher.publish()

    broker.stream(Stream.OBS).limit = None
    await publisher.publish()

    assert len({fact.card for fact in published(broker)}) == 8 * NODES
