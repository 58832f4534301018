"""The chart with three of everything, and beside a broker and database of yours: `make cluster`.

The file of values is that of the chart. What one node does not have is taken out: room for large
requests, cert-manager, the Prometheus operator, and a broker of three servers.
"""

from pathlib import Path

import pytest

from node_cluster import Cluster, running_cluster
from node_drill import (
    NAMESPACE,
    PARTS,
    SHOP,
    explained,
    first_decision,
    killed,
    placed,
    ready,
    recomputed,
    run,
    say,
    scheduled_namespace,
    small_replicas,
)
from node_objects import volumes, waiting_pod
from node_services import (
    broker_of_yours,
    owned_database,
    secret_of_the_database,
    secrets_of_the_broker,
    users_of_the_database,
)

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
INSTALL = ["helm", "install", "joulie", "deploy/chart", "--namespace", NAMESPACE]
UNINSTALL = ["helm", "uninstall", "joulie", "--namespace", NAMESPACE, "--wait", "--timeout=5m"]
THREE_OF_EVERYTHING = 15  # pods of values-ha.yaml at the least
BESIDE_YOURS = 8
# What a cluster of one node has not.
ABSENT = {
    "tls.certManager": "false",
    "monitoring.serviceMonitor": "false",
    "monitoring.rules": "false",
    "nats.replicas": "1",
}
PATIENCE_S = 600.0  # many pods start at once


async def namespaces(cluster: Cluster) -> None:
    metadata = {"name": NAMESPACE}
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await scheduled_namespace(cluster, SHOP)
    await cluster.told("label", "node", "--all", "joulie.io/managed=true")


async def works(cluster: Cluster, least: int) -> None:
    """Pods are placed and explained, `helm test` passes, and the log is recomputed."""
    await ready(cluster, least, PATIENCE_S)
    await first_decision(cluster)
    say(await cluster.helm("test", "joulie", "--namespace", NAMESPACE))
    await recomputed(cluster)


async def survives(cluster: Cluster, least: int, *parts: str) -> None:
    """All replicas of a part are killed, and a pod that arrives then is placed and explained."""
    for part in parts:
        number = killed(part)
        assert number, f"no process of {part}"
        say(f"killed {part} ({number})")
        name = f"after-{part}"
        await cluster.apply(waiting_pod(name, SHOP))
        await placed(cluster, name)
        if part != "extender":  # without one, kube-scheduler decides alone
            await explained(cluster, name)
        await ready(cluster, least, PATIENCE_S)


async def test_three_of_everything_place_and_explain_pods_with_a_user_for_each_right(
    place: Path,
) -> None:
    async with running_cluster(place) as cluster:
        with owned_database() as database:
            await namespaces(cluster)
            await volumes(cluster, projectors=2, brokers=3, extenders=3)
            await secret_of_the_database(cluster)
            small = str(small_replicas(cluster))
            await run(cluster, [*INSTALL, "-f", "deploy/chart/values-ha.yaml", "-f", small])
            await users_of_the_database(cluster, database)
            await works(cluster, THREE_OF_EVERYTHING)
            await survives(cluster, THREE_OF_EVERYTHING, *PARTS)
            await recomputed(cluster)
            await run(cluster, UNINSTALL)


async def test_the_chart_runs_beside_a_broker_and_a_database_of_yours(place: Path) -> None:
    async with running_cluster(place) as cluster:
        with owned_database() as database, broker_of_yours(place / "broker") as url:
            await namespaces(cluster)
            await volumes(cluster)
            await secret_of_the_database(cluster)
            await secrets_of_the_broker(cluster, place / "broker")
            changed = [
                f"--set={name}={value}" for name, value in (ABSENT | {"nats.url": url}).items()
            ]
            await run(cluster, [*INSTALL, "-f", "deploy/chart/values-external.yaml", *changed])
            await users_of_the_database(cluster, database)
            await works(cluster, BESIDE_YOURS)
            sets = (await cluster.read("statefulsets", "-n", NAMESPACE))["items"]
            assert "joulie-nats" not in {each["metadata"]["name"] for each in sets}
            await survives(cluster, BESIDE_YOURS, *(part for part in PARTS if part != "nats"))
            await recomputed(cluster)
            await run(cluster, UNINSTALL)
