import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

import bus_kit
from bus_kit import CLUSTER, bound, card
from bus_kit.stamping import Voices
from joulie_bus.events import codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background, wait_and_clear
from joulie_bus.streams.subjects import Stream
from joulie_operator.facts.hardware_inventory import Inventory
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe import resource_watcher, watch
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.view.view import View
from kube_api import ADMIN, ApiServer, Fault
from kube_builders import Tree, joulie_server, namespace, node, node_hardware, pod
from kube_builders import card as gpu
from kube_requests import Asked
from kube_watch import Watch

pytestmark = pytest.mark.anyio
PATIENCE_S = 120


async def until(condition: Callable[[], bool]) -> None:
    await bus_kit.until(condition, PATIENCE_S)


NODES = ["n1", "n2", "n3"]
KINDS = ("nodes", "nodetwins", "nodehardwares", "gpus", "namespaces", "pods")


both_ways = pytest.mark.parametrize(
    "server", ["sent", "refused"], indirect=True, ids=["as events", "in pages"]
)


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Three nodes and a pending pod; a page has two objects. Lists are sent as initial events
    unless the test sets it otherwise.
    """
    monkeypatch.setattr("joulie_operator.kube.api_client.PAGE", 2)
    monkeypatch.setattr("joulie_operator.kube.api_client.STALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(resource_watcher, "FIRST_PAUSE_S", 0.05)
    made = joulie_server()
    made.initial_events = getattr(request, "param", "sent")
    for name in NODES:
        made.put("nodes", node(name, gpus=8))
    made.put("pods", pod("p1", workload="performance"), "team")
    return made


@contextlib.asynccontextmanager
async def watching(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path, token: str = ADMIN
) -> AsyncGenerator[ObservedCluster, None]:
    cluster = ObservedCluster.empty()
    async with (
        Api.of(server.kubeconfig(tmp, token)) as api,
        background(
            watch_cluster(api, bus, CLUSTER, view, cluster, Inventory(shipped_catalog())), "watch"
        ),
    ):
        yield cluster


async def published(bus: JetStreamLog, about: str = "") -> list[tuple[str, str]]:
    """The type and the key of every observed fact in the log."""
    count, wakeup = (await bus.state(Stream.OBS)).last, asyncio.Event()
    facts: list[tuple[str, str]] = []
    async with asyncio.timeout(PATIENCE_S), bus.reading(Stream.OBS, 0, wakeup=wakeup) as decoder_of:
        while len(facts) < count:
            await wait_and_clear(wakeup, 0.5)
            found = [codec.open_envelope(record.data, "") for record in decoder_of.take(1000)]
            facts += [(envelope.type, envelope.key) for envelope in found]
    return [(kind, key) for kind, key in facts if kind.startswith(about)]


def names(view: View) -> list[str]:
    return sorted(name for name, seen in view.cluster_state.nodes.items() if seen.present)


def knows(view: View, nodes: list[str], pods: int = 1) -> Callable[[], bool]:
    return lambda: names(view) == nodes and len(view.cluster_state.pods) == pods


def shows_all(server: ApiServer, asked: Asked, resource: str = "nodes") -> bool:
    """Whether the request reads everything, as initial events or as the first page of a list."""
    streams = asked.initial and server.initial_events == "sent"
    return asked.resource == resource and (streams or (asked.verb == "list" and not asked.more))


async def test_what_a_late_view_lacks_is_compared_once_the_view_is_complete(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod whose binding the projector had not folded yet, and that was deleted meanwhile."""
    catches_up, voices = watch.catches_up, Voices("before", CLUSTER, lambda: 0)
    calls = itertools.count()

    async def late(seen: View) -> bool:
        if (number := next(calls)) == 0:
            return False
        if number == 1:
            await bus.publish([voices.stamp(bound("deleted", "n1"))])
        return await catches_up(seen)

    monkeypatch.setattr(watch, "catches_up", late)
    async with server.listening(), watching(server, bus, view, tmp_path) as cluster:
        await until(lambda: not cluster.watches.visibility(60).problem)
        await until(knows(view, NODES))

    assert "deleted" not in view.cluster_state.pods
    assert next(calls) == 3  # once more after the view was complete


class Lists:
    """Counts the complete lists that the watchers have read since its creation."""

    def __init__(self) -> None:
        self._before = self._count()

    def _count(self) -> Counter[tuple[str, str]]:
        samples = next(iter(metrics.WATCH_LISTS.collect())).samples
        return Counter(
            {
                (sample.labels["kind"], sample.labels["how"]): int(sample.value)
                for sample in samples
                if sample.name.endswith("_total")
            }
        )

    def of(self, kind: str, how: str = "") -> int:
        found = self._count() - self._before
        return sum(times for (each, by), times in found.items() if each == kind and how in by)


@pytest.fixture
def read() -> Lists:
    return Lists()


@both_ways
async def test_existing_objects_reach_the_view(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))

    seen = view.cluster_state.nodes["n1"]
    assert (seen.labels, seen.ready, seen.schedulable) == (
        {"joulie.io/managed": "true"},
        True,
        True,
    )
    assert (seen.cpu_milli, seen.memory_bytes, seen.gpus) == (96_000, 2**30, 8)
    assert [state.pod.workload for state in view.cluster_state.pods.values()] == ["performance"]


async def test_changed_created_and_deleted_nodes_are_followed(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: read.of("nodes") == 1)
        server.put("nodes", node("n1", power_profile="eco") | {"spec": {"unschedulable": True}})
        server.put("nodes", node("n4"))
        server.delete("nodes", "n2")
        await until(knows(view, ["n1", "n3", "n4"]))

    changed = view.cluster_state.nodes["n1"]
    assert (changed.labels["joulie.io/power-profile"], changed.schedulable) == ("eco", False)


async def test_a_pod_is_followed_from_its_creation_to_its_end(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: knows(view, NODES)() and read.of("pods") == 1)
        target = {"kind": "Node", "name": "n1"}
        server.objects.bind("team", "p1", {"target": target})
        await until(lambda: view.cluster_state.nodes["n1"].performance_pods == 1)
        server.put("pods", {"metadata": {"name": "p1"}, "status": {"phase": "Succeeded"}}, "team")
        await until(lambda: not view.cluster_state.pods)
        facts = [kind for kind, _ in await published(bus, "pod.")]

    assert facts == ["pod.pending", "pod.bound", "pod.gone"]
    assert view.cluster_state.nodes["n1"].performance_pods == 0


async def test_a_pod_that_is_resized_in_place_is_published_when_what_counts_changes(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    def put(asked: str, allocated: str) -> None:
        container: Tree = {"name": "c", "resources": {"requests": {"cpu": asked}}}
        known = {"cpu": allocated}
        status = {"name": "c", "allocatedResources": known, "resources": {"requests": known}}
        tree = pod("p2", node="n1") | {
            "status": {"phase": "Running", "containerStatuses": [status]}
        }
        tree["spec"]["containers"] = [container]
        server.put("pods", tree, "team")

    def has_load(milli: int) -> Callable[[], bool]:
        return lambda: view.cluster_state.nodes["n1"].load.cpu_milli == milli

    put("1", "1")
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES, pods=2))
        for asked, allocated in (("3", "1"), ("3", "3"), ("2", "3"), ("2", "2")):
            put(asked, allocated)
        await until(has_load(2000))
        facts = [kind for kind, _ in await published(bus, "pod.bound")]

    assert facts == ["pod.bound"] * 3  # with 1, 3 and 2 cores


async def test_hardware_and_cards_come_from_their_own_resources(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server.put("nodehardwares", node_hardware("n1", gpus=4))
    server.put("gpus", gpu("GPU-1", "n1"))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(
            lambda: (
                "GPU-1" in view.cluster_state.gpus and bool(view.cluster_state.nodes["n1"].hardware)
            )
        )
        server.put("gpus", gpu("GPU-1", "n1", used_mb=20_000))
        await until(lambda: view.cluster_state.gpus["GPU-1"].allocated_mb == 20_000)
        server.delete("gpus", "gpu-1")
        await until(lambda: not view.cluster_state.gpus)

    found = view.cluster_state.nodes["n1"].hardware
    assert found is not None
    assert (found.cpu_sockets, found.cpu_cores, found.cpu_max_mw_per_socket) == (2, 192, 360_000)
    assert (found.gpu_model, found.gpu_count, found.gpu_max_mw) == ("NVIDIA H100 SXM5", 4, 700_000)


async def test_hardware_without_a_resource_comes_from_labels_and_what_can_be_allocated(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    labelled = node("n1", gpus=8)
    labelled["metadata"]["labels"]["joulie.io/hw.gpu-model"] = "NVIDIA-H100-80GB-HBM3"
    server.put("nodes", labelled)
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: knows(view, NODES)() and bool(view.cluster_state.nodes["n1"].hardware))

    found = view.cluster_state.nodes["n1"].hardware
    assert found is not None
    assert (found.source, found.cpu_cores, found.gpu_count, found.gpu_max_mw) == (
        "labels",
        96,
        8,
        700_000,
    )


async def test_a_pod_without_an_annotation_has_the_class_of_its_namespace(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server.put("namespaces", namespace("fast", "performance"))
    server.put("pods", pod("p2", namespace="fast"), "fast")
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES, pods=2))

    asks = [state.pod for state in view.cluster_state.pods.values() if state.pod.name == "p2"]
    assert [(ask.workload, ask.rule) for ask in asks] == [("performance", "namespace")]


async def test_the_log_contains_namespaces_that_set_a_class(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    for name, given in (("fast", "performance"), ("slow", "standard"), ("team", "")):
        server.put("namespaces", namespace(name, given))
    async with server.listening():
        async with watching(server, bus, view, tmp_path):
            await until(lambda: len(view.cluster_state.namespaces) == 2)
            server.delete("namespaces", "slow")
            await until(lambda: view.cluster_state.namespaces == {"fast": "performance"})
        async with watching(server, bus, view, tmp_path):
            await until(lambda: read.of("namespaces") == 2)

    facts = await published(bus, "namespace.")
    assert sorted(name for _, name in facts) == ["fast", "slow", "slow"]


@both_ways
async def test_missing_crds_do_not_block_the_other_kinds(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    for plural in ("nodehardwares", "gpus", "nodetwins"):
        del server.objects.kinds[server.kind(plural).group, plural]
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))


@both_ways
@pytest.mark.parametrize("how", ["as an event", "as a status"])
async def test_a_compacted_version_is_listed_again_and_no_fact_is_published_twice(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists, how: str
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: read.of("nodes") == 1)
        server.put(
            "pods", pod("p2"), "team"
        )  # changes go on, and the version of nodes is compacted
        await until(knows(view, NODES, pods=2))
        if how == "as a status":
            server.faults.append(
                Fault(lambda a: a.right == ("", "nodes", "watch") and not a.initial, 410, "Expired")
            )
        else:
            server.compact()
        server.cut_watches()
        await until(lambda: read.of("nodes") == 2)

    assert [fact for fact in await published(bus, "node.")] == [
        ("node.seen", name) for name in NODES
    ]


@both_ways
@pytest.mark.parametrize("fault", [(401, {}), (403, {}), (429, {"Retry-After": "1"}), (500, {})])
async def test_a_refused_list_is_retried(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    fault: tuple[int, dict[str, str]],
) -> None:
    status, headers = fault
    server.faults.append(Fault(lambda asked: shows_all(server, asked), status, headers=headers))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))

    assert sum(shows_all(server, asked) for asked in server.asked) == 2


@pytest.mark.parametrize("server", ["refused"], indirect=True)
async def test_an_expired_page_restarts_the_list(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    def second_page(asked: Asked) -> bool:
        return asked.resource == "nodes" and asked.more

    server.faults.append(Fault(second_page, 410, "Expired"))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))
        facts = await published(bus, "node.")

    assert facts == [("node.seen", name) for name in NODES]


# --- initial events ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "unsupported", "unknown", "silent"])
async def test_pages_are_read_from_a_server_without_initial_events(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists, how: str
) -> None:
    server.initial_events = how if how in ("refused", "unsupported") else "unknown"  # type: ignore[assignment]
    server.bookmark_s = 0.1 if how == "unknown" else 60
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))
        server.put("pods", pod("p2"), "team")
        await until(knows(view, NODES, pods=2))
        server.compact()
        server.cut_watches()
        await until(lambda: read.of("nodes", "pages") == 2)

    asked = [each for each in server.asked if each.resource == "nodes"]
    assert sum(each.initial for each in asked) == 1
    assert await published(bus, "node.") == [("node.seen", name) for name in NODES]


async def test_no_list_is_requested_from_a_server_with_initial_events(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: all(read.of(kind, "events") for kind in KINDS))

    assert Counter(each.verb for each in server.asked) == {"watch": len(KINDS)}


async def test_interrupted_initial_events_are_requested_again(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    server.midway = Watch.cut
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))
        await until(lambda: all(read.of(kind, "events") for kind in KINDS))

    assert sum(asked.initial for asked in server.asked) == len(KINDS) + 1


async def test_changes_during_initial_events_end_in_the_latest_state(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    def meanwhile(_: Watch) -> None:
        server.delete("nodes", "n1")
        server.delete("nodes", "n2")
        server.put("nodes", node("n2", rack="r7"))

    async with watching(server, bus, view, tmp_path) as cluster:
        server.midway = meanwhile
        async with server.listening():
            await until(lambda: names(view) == ["n2", "n3"] and read.of("nodes") == 1)
            await until(lambda: "joulie.io/rack" in view.cluster_state.nodes["n2"].labels)

    assert sorted(cluster.nodes.names()) == ["n2", "n3"]


@both_ways
async def test_an_interrupted_watch_resumes_at_its_version(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: read.of("nodes") == 1)
        server.put("nodes", node("n4"))
        await until(knows(view, [*NODES, "n4"]))
        server.cut_watches()
        server.put("nodes", node("n5"))
        await until(knows(view, [*NODES, "n4", "n5"]))

    assert sum(shows_all(server, asked) for asked in server.asked) == 1
    assert len(await published(bus, "node.")) == 5


async def test_watches_that_end_at_once_are_not_opened_again_without_a_pause(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource_watcher, "SHORT_WATCH_S", 60)  # however slow the machine is

    def resumes(asked: Asked) -> bool:
        return asked.right == ("", "nodes", "watch") and not asked.initial

    failures = metrics.WATCH_FAILURES.labels(kind="nodes")._value.get
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, NODES))
        before = failures()
        server.faults.append(Fault(resumes, times=3, body=b"\n"))
        server.cut_watches()
        server.put("nodes", node("n4"))
        await until(knows(view, [*NODES, "n4"]))

    assert failures() - before == 1 + 3, "the cut, and each watch after it"
    assert sum(shows_all(server, asked) for asked in server.asked) == 1


async def test_a_watch_without_events_and_bookmarks_is_opened_again(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("joulie_operator.kube.api_client.WATCH_SILENCE_S", 1.0)
    server.bookmark_s = 0.3
    async with server.listening(), watching(server, bus, view, tmp_path) as cluster:
        await until(knows(view, NODES))
        await until(lambda: cluster.watches.pods.is_open)
        server.silence_watches()
        server.put("nodes", node("n4"))
        await until(lambda: not cluster.watches.visibility(30).pods_known)
        await until(knows(view, [*NODES, "n4"]))
        await until(lambda: cluster.watches.visibility(30).pods_known)


async def test_bookmarks_keep_a_quiet_watch_open(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("joulie_operator.kube.api_client.WATCH_SILENCE_S", 2.0)
    server.bookmark_s = 0.3
    async with server.listening(), watching(server, bus, view, tmp_path) as cluster:
        await until(lambda: cluster.watches.pods.is_open)
        asked = len(server.asked)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 4)

        assert [str(each) for each in server.asked[asked:] if "watch" in str(each)] == []


@both_ways
async def test_changes_during_an_outage_are_published_after_it(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    async with watching(server, bus, view, tmp_path):
        async with server.listening():
            await until(knows(view, NODES))
        server.delete("nodes", "n1")
        server.compact()
        async with server.listening():
            await until(knows(view, NODES[1:]))

    facts = await published(bus, "node.")
    assert facts == [*[("node.seen", name) for name in NODES], ("node.gone", "n1")]


@both_ways
async def test_a_restarted_operator_publishes_only_changes(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    server.put("nodehardwares", node_hardware("n1"))
    server.put("gpus", gpu("GPU-1", "n1"))
    server.put("pods", pod("p2", node="n1"), "team")
    async with server.listening():
        async with watching(server, bus, view, tmp_path):
            await until(lambda: knows(view, NODES, 2)() and bool(view.cluster_state.gpus))
            await until(lambda: view.cluster_state.nodes["n1"].hardware is not None)
        before = await published(bus)
        server.put("nodes", node("n2", power_profile="eco"))
        server.delete("nodes", "n3")
        server.delete("pods", "p1", "team")
        async with watching(server, bus, view, tmp_path):
            await until(knows(view, ["n1", "n2"], 1))
            await until(lambda: read.of("gpus") == 2)

    news = (await published(bus))[len(before) :]
    assert sorted(kind for kind, _ in news) == ["node.gone", "node.seen", "pod.gone"]


async def test_a_card_reported_by_an_agent_stays_without_gpu_resources(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    from msgspec.structs import replace

    from bus_kit import producer

    shown = replace(card("GPU-7"), source="agent")
    await bus.publish([producer().stamp(shown)])
    await until(lambda: "GPU-7" in view.cluster_state.gpus)
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: read.of("gpus") == 1)

    assert await published(bus, "gpu.") == [("gpu.seen", "GPU-7")]


@pytest.mark.parametrize("cpu", ["lots", None], ids=["not a quantity", "wrong type"])
async def test_an_unreadable_object_does_not_block_the_others(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, cpu: str | None
) -> None:
    broken = {"cpu": cpu} if cpu else {"cpu": ["a", "list"]}
    server.put("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": broken}})
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(knows(view, ["n2", "n3"]))


async def test_an_object_may_be_as_large_as_the_server_stores(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, read: Lists
) -> None:
    async with server.listening(), watching(server, bus, view, tmp_path):
        await until(lambda: knows(view, NODES)() and read.of("nodes") == 1)
        large = node("n1", rack="r1")
        large["metadata"]["annotations"] = {"big": "x" * 1_500_000}
        server.put("nodes", large)
        await until(lambda: "joulie.io/rack" in view.cluster_state.nodes["n1"].labels)
