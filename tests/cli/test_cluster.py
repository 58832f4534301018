"""The operator as a process with a cluster: from Node objects to applied NodeTwins, and back."""

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from bus_kit import inventory, stored, until
from joulie_bus.broker.embedded import address_within
from joulie_bus.events import InventoryRead, PlanMade, ProfileAssigned, codec
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.settings import BusSettings
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects, agent_name
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from kube_api import ApiServer, Fault
from kube_builders import card, granted, namespace, node, node_hardware, pod, server_of_four
from kube_devices import serve_kinds
from kube_fields import Patch

pytestmark = pytest.mark.anyio
PATIENCE_S = 120.0
NAMES = [f"n{number}" for number in range(8)]


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer, None]:
    """Four managed nodes, for an account with the rights of the manifest."""
    made = server_of_four("operator", granted("rbac.yaml"))
    serve_kinds(made)
    made.put("nodehardwares", node_hardware("n0"))
    made.put("namespaces", namespace("fast", "performance"))
    made.put("pods", pod("p1"), "team")
    made.put("gpus", card("GPU-1", "n0"))
    said = {"status": {"podName": "long-gone", "phase": "Allocated"}}  # by a former operator
    patch = Patch("joulie-operator", force=True, dry_run=False, subresource="status")
    made.objects.apply(made.kind("gpus"), "", "gpu-1", said, patch)
    async with made.listening():
        yield made


def running(command: str, server: ApiServer, data: Path) -> AbstractAsyncContextManager[Process]:
    return joulie(command, server.kubeconfig(data.parent, "operator"), data, PATIENCE_S)


def profiles(server: ApiServer) -> Counter[str]:
    return Counter(twin["spec"].get("profile", "") for twin in server.all("nodetwins").values())


def labels(server: ApiServer) -> Counter[str]:
    found = (each["metadata"]["labels"] for each in server.all("nodes").values())
    return Counter(each.get("joulie.io/power-profile", "") for each in found)


def holder(server: ApiServer) -> str:
    lease = server.all("leases").get("joulie-operator", {"spec": {}})
    return str(lease["spec"].get("holderIdentity", ""))


def stands_by(server: ApiServer) -> bool:
    """Another operator reads the lease repeatedly and does not take it."""
    taken = server.count("create", "leases") + server.count("update", "leases")
    return server.count("get", "leases") > taken + 3


def refused_on_a_sample(server: ApiServer, data: Path) -> None:
    """Asks the extender as kube-scheduler does on a large cluster; all nodes are eco nodes."""
    twins = server.all("nodetwins")
    eco = next(name for name, twin in twins.items() if twin["spec"]["profile"] == "eco")
    asked = {"Pod": server.all("pods")["fast"], "NodeNames": [eco] * 120}
    running = DataDirectory(data).running()
    assert running is not None
    address = f"{running.endpoints['extender']}/filter"
    request = Request(address, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        assert json.load(answer)["NodeNames"] == []


async def publish(data: Path, node: str, *found: InventoryRead) -> None:
    """As the agent of a node does."""
    running = DataDirectory(data).running()
    assert running is not None
    address = address_within(data, running.nats_url, Role.AGENT)
    connection = await Connection.open(address, "test")
    says = Producer(agent_name(node), Subjects(BusSettings().cluster), time.time_ns)
    try:
        async with JetStreamLog.over(connection) as bus:
            await bus.publish([says.stamp(each) for each in found])
    finally:
        await connection.close()


async def found_by_agents(server: ApiServer, data: Path) -> None:
    """Objects are made, renewed and deleted for what agents find."""
    await publish(data, "n3", inventory("n3", "GPU-a", problem="XID 79"))
    await so(lambda: {"gpu-a"} <= server.all("gpus").keys())
    await so(lambda: server.all("gpus")["gpu-a"].get("status", {}).get("healthy") is False)
    await so(lambda: "status" in server.all("nodehardwares").get("n3", {}))


async def so(condition: Callable[[], bool]) -> None:
    await until(condition, PATIENCE_S)


async def plans(data: Path) -> list[PlanMade | ProfileAssigned]:
    running = DataDirectory(data).running()
    assert running is not None
    address = address_within(data, running.nats_url, Role.ADMIN)
    connection = await Connection.open(address, "test")
    try:
        records = await stored(connection, Stream.PLAN)
    finally:
        await connection.close()
    events = [codec.decoded(record.data, "") for record in records]
    return [event for event in events if isinstance(event, PlanMade | ProfileAssigned)]


@pytest.mark.long
async def test_from_nodes_to_applied_twins_with_the_rights_of_the_manifest(
    server: ApiServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    server.initial_events = "refused"  # lists, too, have to be allowed
    async with running("up", server, data) as process:
        await so(lambda: profiles(server) == labels(server) == {"performance": 2, "eco": 2})
        server.put("nodes", node("n4"))
        await so(lambda: profiles(server).total() == labels(server).total() == 5)
        await so(lambda: "podName" not in server.all("gpus")["gpu-1"]["status"])
        await found_by_agents(server, data)
        server.delete("nodes", "n3")
        await so(lambda: "n3" not in server.all("nodehardwares"))
        await so(lambda: "n3" not in server.all("nodetwins"))
        await so(lambda: len(server.all("events")) >= 5)
        server.put("pods", pod("fast", workload="performance"), "team")
        await asyncio.to_thread(refused_on_a_sample, server, data)
        await so(lambda: "nominatedNodeName" in server.all("pods")["fast"]["status"])
        on = server.all("pods")["fast"]["status"]["nominatedNodeName"]
        assert server.all("nodetwins")[on]["spec"]["profile"] == "performance"
    assert process.returncode == 0

    statuses = [twin["status"]["schedulableClass"] for twin in server.all("nodetwins").values()]
    assert set(statuses) == {"performance", "eco"}
    assert holder(server) == ""  # given back
    assert server.used == granted("rbac.yaml")


@pytest.mark.drill
async def test_an_operator_that_is_killed_is_followed_by_another_that_repeats_no_plan(
    server: ApiServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    async with running("up", server, data):
        await so(lambda: profiles(server) == {"performance": 2, "eco": 2})
        first = holder(server)
        async with running("operator", server, data) as standby:
            await so(lambda: stands_by(server))
            directory = DataDirectory(data).running()
            assert directory is not None
            os.kill(directory.parts["operator"], signal.SIGKILL)
            for number in range(4, 8):  # while no operator leads
                server.put("nodes", node(f"n{number}"))
            await so(lambda: holder(server) not in ("", first))
            await so(lambda: profiles(server) == labels(server) == {"performance": 4, "eco": 4})
            events = await plans(data)
        assert standby.returncode == 0

    assigned = [event for event in events if isinstance(event, ProfileAssigned)]
    made = [event for event in events if isinstance(event, PlanMade) and event.changes]
    assert Counter((each.node, each.profile) for each in assigned).most_common(1)[0][1] == 1
    assert len(made) == len({each.plan for each in made})


@pytest.mark.drill
async def test_a_long_outage_stops_plans_leaves_twins_and_ends_without_a_storm(
    server: ApiServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    async with running("up", server, data) as process:
        await so(lambda: profiles(server) == labels(server) == {"performance": 2, "eco": 2})
        refused = Fault(lambda _: True, 503, "ServiceUnavailable", times=1_000_000)
        server.faults.append(refused)
        server.cut_watches()
        begun = len(server.asked)
        for number in range(4, 8):
            server.put("nodes", node(f"n{number}"))
        await so(lambda: len(server.asked) > begun + 40)  # several leases' worth
        during, planned = profiles(server), await plans(data)
        assert process.returncode is None
        server.faults.clear()
        back = len(server.asked)
        await so(lambda: profiles(server) == labels(server) == {"performance": 4, "eco": 4})

    again = server.asked[back:]
    assert during == {"performance": 2, "eco": 2}
    assert {each.node for each in planned if isinstance(each, ProfileAssigned)} == set(NAMES[:4])
    whole = sum(each.initial or (each.verb == "list" and not each.more) for each in again)
    assert whole <= 6, "one for each kind"
    assert Counter(e.name for e in again if e.resource == "nodetwins").most_common(1)[0][1] <= 2
