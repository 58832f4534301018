import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import bus_kit
from bus_kit import (
    CLUSTER,
    asleep,
    bound,
    caps,
    draining,
    eco,
    hardware,
    performance,
    plan_made,
    power,
    producer,
    waking,
)
from joulie_bus.core.pacing import SHARE
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_operator.apply import writer
from joulie_operator.apply.release import release
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.pending_writes import WritePlanner
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe import resource_watcher
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.resources.timestamps import rfc3339
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import joulie_server, node
from kube_fields import Patch
from kube_requests import Asked

pytestmark = pytest.mark.anyio
SELECTOR = {"joulie.io/managed": "true"}
PATIENCE_S = 120


async def until(condition: Callable[[], bool]) -> None:
    await bus_kit.until(condition, PATIENCE_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Three managed nodes."""
    monkeypatch.setattr(resource_watcher, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(writer, "CHECK_INTERVAL_S", 0.05)
    made = joulie_server()
    for name in ("n1", "n2", "n3"):
        made.put("nodes", node(name))
    return made


@pytest.fixture
def tell(bus: JetStreamLog, view: View) -> Callable[..., Any]:
    """Publishes facts; returns once the view contains them."""
    says = producer("planner")

    async def publish(*facts: AnyEvent) -> None:
        before = view.position
        await bus.publish([says.stamp(fact) for fact in facts])
        await view.wait_for(before + len(facts), PATIENCE_S)

    return publish


@contextlib.asynccontextmanager
async def applying(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path, **values: Any
) -> AsyncGenerator[None, None]:
    cluster = ObservedCluster.empty()
    settings = replace(Source.of(APPLY_RATE="1000").load(ApplierSettings), **values)
    async with (
        Api.of(server.kubeconfig(tmp)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster), "watch"),
        background(Applier(api, view, cluster, SELECTOR, settings).run(), "apply"),
    ):
        await asyncio.wait_for(cluster.nodes.complete.wait(), PATIENCE_S)
        await until(lambda: len(view.cluster_state.nodes) >= 1)
        yield


def twins(server: ApiServer) -> dict[str, Any]:
    """The specs."""
    return {name: twin["spec"] for name, twin in server.all("nodetwins").items()}


def status(server: ApiServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.all("nodetwins").get(name, {}).get("status", {})
    return found


def label(server: ApiServer, name: str) -> str | None:
    labels = server.all("nodes")[name]["metadata"].get("labels", {})
    found: str | None = labels.get("joulie.io/power-profile")
    return found


def has_settled(server: ApiServer, *names: str) -> Callable[[], bool]:
    """Whether each node has its spec, its label, and a whole status for this spec."""

    def is_so() -> bool:
        found = server.all("nodetwins")
        return all(
            name in found
            and found[name].get("status", {}).get("observedGeneration")
            == found[name]["metadata"]["generation"]
            and "conditions" in found[name]["status"]
            and label(server, name) is not None
            for name in names
        )

    return is_so


async def test_a_plan_becomes_twins_labels_statuses_and_events(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(hardware("n1", gpus=8), plan_made(), performance("n1"), caps("n1", 100, 100))
        await tell(eco("n2"), caps("n2", 60), power("n2", 100))
        await until(has_settled(server, "n1", "n2"))
        await until(lambda: len(server.all("events")) == 2)

    assert twins(server) == {
        "n1": {
            "nodeName": "n1",
            "profile": "performance",
            "cpu": {"packagePowerCapPctOfMax": 100},
            "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 100}},
            "policy": {"name": "static_partition"},
        },
        "n2": {
            "nodeName": "n2",
            "profile": "eco",
            "cpu": {"packagePowerCapPctOfMax": 60},
            "policy": {"name": "static_partition"},
        },
    }
    assert (label(server, "n1"), label(server, "n2"), label(server, "n3")) == (
        "performance",
        "eco",
        None,
    )
    assert (status(server, "n1")["schedulableClass"], status(server, "n2")["schedulableClass"]) == (
        "performance",
        "eco",
    )
    reasons = {event["reason"] for event in server.all("events").values()}
    assert reasons == {"PerformanceAssigned", "EcoAssigned"}


async def test_a_status_reports_the_twin_and_the_generation_of_the_spec(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    await tell(hardware("n1", watts=400), power("n1", 123.5), eco("n1"), caps("n1", 50))
    measured_at = rfc3339(view.cluster_state.nodes["n1"].samples[-1].at)
    async with server.listening(), applying(server, bus, view, tmp_path):
        await until(has_settled(server, "n1"))
        found = status(server, "n1")

    conditions = {each["type"]: each["status"] for each in found["conditions"]}
    assert conditions == {
        "Planned": "True",
        "Draining": "False",
        "HardwareKnown": "True",
        "PowerMeasured": "True",
    }
    # Its caps came with its second spec.
    assert {each["observedGeneration"] for each in found["conditions"]} == {2}
    assert found["powerMeasurement"] == {
        "source": "kepler",
        "measuredNodePowerW": 123.5,
        "powerTrendWPerMin": 0.0,
        "nodeCappedPowerW": 200.0,
        "cpuCappedPowerW": 200.0,
        "gpuCappedPowerW": 0.0,
        "nodeTdpW": 400.0,
        "cpuTdpW": 400.0,
        "gpuTdpW": 0.0,
        "measuredAt": measured_at,
    }
    assert found["lastUpdated"] >= measured_at  # the node is seen after it was measured
    assert found["effectiveCapState"] == {"cpuPct": 50}
    assert found["predictedPowerHeadroomScore"] == 48.0  # 50 % of caps, cooling stress 4


async def test_a_draining_node_has_an_eco_spec_but_keeps_its_caps_and_its_label(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(performance("n1"), caps("n1", 100), bound("p", "n1", performance=True))
        await until(has_settled(server, "n1"))
        await tell(draining("n1"))
        await until(lambda: status(server, "n1").get("schedulableClass") == "draining")
        waiting = twins(server)["n1"]
        await tell(eco("n1"), caps("n1", 60))
        await until(lambda: label(server, "n1") == "eco")
        await until(lambda: twins(server)["n1"]["cpu"] == {"packagePowerCapPctOfMax": 60})

    assert (waiting["profile"], waiting["cpu"], waiting["scheduling"]) == (
        "eco",
        {"packagePowerCapPctOfMax": 100},
        {"draining": True},
    )


async def test_a_sleeping_node_is_labelled_and_cordoned_until_it_wakes(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    def found(name: str) -> tuple[str | None, bool]:
        shown = server.all("nodes")[name]
        power_state = shown["metadata"].get("labels", {}).get("joulie.io/power-state")
        return power_state, shown.get("spec", {}).get("unschedulable", False)

    # An administrator has cordoned the other node, which stays as it is.
    administrator = Patch("kubectl-cordon", force=True, dry_run=False)
    cordon = {"spec": {"unschedulable": True}}
    server.objects.apply(server.objects.kinds["", "nodes"], "", "n2", cordon, administrator)
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(eco("n1"), asleep("n1"), eco("n2"), asleep("n2"))
        await until(lambda: found("n1") == found("n2") == ("asleep", True))
        await tell(waking("n1"), waking("n2"))
        await until(lambda: found("n1") == (None, False))
        await until(lambda: found("n2") == (None, True))


EXCLUSION = "node.kubernetes.io/exclude-disruption"


def exclusion(server: ApiServer, name: str) -> str | None:
    found: str | None = server.all("nodes")[name]["metadata"].get("labels", {}).get(EXCLUSION)
    return found


def is_cordoned(server: ApiServer, name: str) -> bool:
    return bool(server.all("nodes")[name].get("spec", {}).get("unschedulable"))


def reports(server: ApiServer, name: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": str(ready)}]
    server.put("nodes", {"metadata": {"name": name}, "status": {"conditions": conditions}})


async def test_a_sleeping_node_is_left_out_of_disruptions_until_it_is_ready_again(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening():
        async with applying(server, bus, view, tmp_path):
            await tell(eco("n1"), asleep("n1"))
            await until(lambda: is_cordoned(server, "n1"))
            together = exclusion(server, "n1")
            reports(server, "n1", ready=False)
            await until(lambda: not view.cluster_state.nodes["n1"].ready)
        async with applying(server, bus, view, tmp_path):  # the former one was killed
            await tell(waking("n1"))
            await until(lambda: not is_cordoned(server, "n1"))
            while_waking = exclusion(server, "n1")
            reports(server, "n1", ready=True)
            await until(lambda: exclusion(server, "n1") is None)

    assert (together, while_waking) == ("joulie", "joulie")


async def test_an_exclusion_by_another_stays(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    administrator = Patch("kubectl-label", force=True, dry_run=False)
    theirs = {"metadata": {"labels": {EXCLUSION: ""}}}
    server.objects.apply(server.objects.kinds["", "nodes"], "", "n1", theirs, administrator)
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(eco("n1"), asleep("n1"))
        await until(lambda: is_cordoned(server, "n1"))
        while_asleep, written = exclusion(server, "n1"), len(server.writes())
        reports(server, "n1", ready=False)
        await until(lambda: not view.cluster_state.nodes["n1"].ready)
        await tell(waking("n1"))
        await until(lambda: not is_cordoned(server, "n1"))
        reports(server, "n1", ready=True)
        await until(lambda: not view.cluster_state.nodes["n1"].power_state)
        await tell(performance("n1"))
        await until(lambda: label(server, "n1") == "performance")

    assert (while_asleep, exclusion(server, "n1")) == ("", "")
    labels = [w for w in server.writes()[written:] if (w.resource, w.name) == ("nodes", "n1")]
    assert len(labels) == 2  # the cordon, and the profile: no write about the exclusion


async def test_a_release_removes_our_exclusion_and_no_other(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    administrator = Patch("kubectl-label", force=True, dry_run=False)
    theirs = {"metadata": {"labels": {EXCLUSION: ""}}}
    server.objects.apply(server.objects.kinds["", "nodes"], "", "n2", theirs, administrator)
    async with server.listening():
        async with applying(server, bus, view, tmp_path):
            await tell(eco("n1"), asleep("n1"), eco("n2"), asleep("n2"))
            await until(lambda: is_cordoned(server, "n1") and is_cordoned(server, "n2"))
            before = exclusion(server, "n1")
        async with Api.of(server.kubeconfig(tmp_path)) as api:
            await release(api)

    assert (before, exclusion(server, "n1"), exclusion(server, "n2")) == ("joulie", None, "")


async def test_a_node_that_is_not_managed_any_more_keeps_no_exclusion(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(eco("n1"), asleep("n1"))
        await until(lambda: exclusion(server, "n1") == "joulie")
        server.put("nodes", {"metadata": {"name": "n1", "labels": {"joulie.io/managed": None}}})
        await until(lambda: exclusion(server, "n1") is None and not is_cordoned(server, "n1"))


async def test_objects_that_are_up_to_date_are_not_written(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening():
        async with applying(server, bus, view, tmp_path):
            await tell(*[eco(name) for name in ("n1", "n2", "n3")])
            await until(has_settled(server, "n1", "n2", "n3"))
        before = len(server.writes())
        async with applying(server, bus, view, tmp_path):  # a restarted operator
            await tell(power("n1", 100.0), eco("n2"))
            await until(lambda: status(server, "n1")["powerMeasurement"]["source"] == "kepler")
            await tell(power("n1", 101.0))  # a small change

    written = [(asked.verb, asked.resource, asked.name) for asked in server.writes()[before:]]
    assert written == [("patch", "nodetwins/status", "n1")]


async def test_changes_of_a_twin_or_a_label_by_another_writer_are_reverted(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(eco("n1"))
        await until(has_settled(server, "n1"))
        server.put("nodes", node("n1", power_profile="performance"))
        await until(lambda: label(server, "n1") == "eco")
        server.delete("nodetwins", "n1")
        await until(has_settled(server, "n1"))

    assert twins(server)["n1"]["profile"] == "eco"


THEIRS = {
    "spec": {
        "nodeName": "n1",
        "profile": "performance",
        "cpu": {"packagePowerCapPctOfMax": 100},
        "gpu": {"powerCap": {"scope": "perGpu", "capPctOfMax": 100}},
        "policy": {"name": "queue_aware_v1"},
    },
    "status": {
        "schedulableClass": "performance",
        "predictedPowerHeadroomScore": -50,
        "predictedCoolingStressScore": 31.3,
        "predictedPsuStressScore": 60,
        "hardwareDensityScore": 0.72,
        "estimatedPUE": 1.0,
        "powerMeasurement": {
            "source": "prometheus",
            "measuredNodePowerW": 1450.5,
            "nodeCappedPowerW": 1440,
            "nodeTdpW": 2400,
            "powerTrendWPerMin": -5.2,
        },
        "lastUpdated": "2025-01-01T00:00:00Z",
    },
}


async def test_twins_of_another_installation_are_taken_over(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    server.put("nodetwins", {"metadata": {"name": "n1"}} | THEIRS)
    server.put("nodes", node("n1", power_profile="performance"))
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(hardware("n1"), eco("n1"), caps("n1", 60), power("n1", 212.5))
        await until(lambda: status(server, "n1")["schedulableClass"] == "eco")
        await until(lambda: label(server, "n1") == "eco")
        await until(lambda: status(server, "n1")["powerMeasurement"]["source"] == "kepler")

    assert twins(server)["n1"]["profile"] == "eco"
    assert status(server, "n1")["predictedPowerHeadroomScore"] > 0


async def test_the_objects_of_an_unmanaged_node_are_removed(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    server.put("nodetwins", {"metadata": {"name": "by-hand"}, "spec": {"nodeName": "by-hand"}})
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(*[eco(name) for name in ("n1", "n2", "n3")])
        await until(has_settled(server, "n1", "n2", "n3"))
        server.put("nodes", {"metadata": {"name": "n1", "labels": {"joulie.io/managed": None}}})
        server.put("nodes", node("n2", reserved="true"))
        server.delete("nodes", "n3")
        await until(lambda: set(twins(server)) == {"by-hand"})
        await until(lambda: label(server, "n1") is None and label(server, "n2") is None)


async def test_expensive_checks_are_rare(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even while objects change all the time."""
    pending_writes, looks, cost_s, while_s = WritePlanner.pending_writes, 0, 0.02, 2.0

    def costly(self: WritePlanner, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        began = time.process_time()
        while time.process_time() - began < cost_s:
            pass
        return pending_writes(self, *args)

    monkeypatch.setattr(writer, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(WritePlanner, "pending_writes", costly)
    async with server.listening(), applying(server, bus, view, tmp_path):
        looks = 0
        await asyncio.sleep(while_s)

    assert looks <= while_s * SHARE / cost_s + 1


async def test_the_applier_does_not_pause_while_writes_are_left(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    tell: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"m{number:02}" for number in range(40)]
    for name in names:
        server.put("nodes", node(name))
    write_pending, done = Applier._write_pending, list[str]()

    async def recorded(self: Applier, pending: Any) -> bool:
        is_left = await write_pending(self, pending)
        done.append("some are left" if is_left else "all")
        return is_left

    async def rest(*_: object) -> None:
        done.append("a pause")

    monkeypatch.setattr(writer, "PASS_S", 0.02)
    monkeypatch.setattr(Applier, "_write_pending", recorded)
    monkeypatch.setattr(Applier, "_rest", rest)
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(*(eco(name) for name in names))
        await until(has_settled(server, *names))

    assert "some are left" in done
    rested_after = {before for before, then in pairwise(done) if then == "a pause"}
    assert rested_after <= {"all"}


async def test_an_empty_log_removes_nothing(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    twin = {"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin"}
    spec = {"nodeName": "n1", "profile": "eco"}
    async with server.listening():
        async with Api.of(server.kubeconfig(tmp_path)) as api:  # a former operator
            body = twin | {"metadata": {"name": "n1"}, "spec": spec}
            await api.apply("/apis/joulie.io/v1alpha1/nodetwins/n1", body)
        async with applying(server, bus, view, tmp_path):
            await tell(eco("n2"))
            await until(has_settled(server, "n2"))

    assert twins(server)["n1"] == spec


@pytest.mark.parametrize("status_code", [409, 422, 500, 503])
async def test_a_refused_write_is_retried_and_does_not_delay_the_others(
    server: ApiServer,
    bus: JetStreamLog,
    view: View,
    tmp_path: Path,
    tell: Callable[..., Any],
    status_code: int,
) -> None:
    def first_ones(asked: Asked) -> bool:
        return asked.right == ("joulie.io", "nodetwins", "patch") and asked.name == "n1"

    server.faults.append(Fault(first_ones, status_code, "Conflict", times=3))
    async with server.listening(), applying(server, bus, view, tmp_path):
        await tell(*[eco(name) for name in ("n1", "n2", "n3")])
        await until(has_settled(server, "n2", "n3"))
        await until(has_settled(server, "n1"))

    tries = [a for a in server.asked if first_ones(a)]
    assert len(tries) == 4


async def test_the_applier_respects_retry_after(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    def is_of_n1(asked: Asked) -> bool:
        return asked.right == ("joulie.io", "nodetwins", "patch") and asked.name == "n1"

    headers = {"Retry-After": "3600"}
    server.faults.append(Fault(is_of_n1, 429, "TooManyRequests", headers, times=1))
    with capture_logs() as lines:
        async with server.listening(), applying(server, bus, view, tmp_path, at_once=1):
            await tell(*[eco(name) for name in ("n1", "n2", "n3")])
            await until(has_settled(server, "n2", "n3"))
            await until(lambda: any(map(is_of_n1, server.asked)))

    [failed] = [line for line in lines if line["event"] == "not_applied"]
    assert (failed["node"], failed["retry_in_s"] >= 3600) == ("n1", True)
    assert len([asked for asked in server.asked if is_of_n1(asked)]) == 1


async def test_the_applier_waits_for_retry_after_and_writes_then(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    headers = {"Retry-After": "1"}
    server.faults.append(
        Fault(lambda asked: asked.verb == "patch", 429, "TooManyRequests", headers, times=2)
    )
    async with server.listening(), applying(server, bus, view, tmp_path, at_once=1):
        await tell(*[eco(name) for name in ("n1", "n2", "n3")])
        await until(has_settled(server, "n1", "n2", "n3"))


async def test_a_slow_write_ends_at_its_deadline(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    async with server.listening(), applying(server, bus, view, tmp_path, deadline_s=0.2):
        await until(lambda: server.count("watch", "nodetwins") == 1)
        server.slowness_s = 5
        await tell(eco("n1"))
        await until(lambda: server.count("patch", "nodetwins") >= 2)
        server.slowness_s = 0
        await until(has_settled(server, "n1"))


async def test_an_outage_leaves_the_twins_and_ends_without_a_burst_of_requests(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, tell: Callable[..., Any]
) -> None:
    names = [f"n{number}" for number in range(1, 60)]
    for name in names[3:]:
        server.put("nodes", node(name))
    async with applying_through_an_outage(server, bus, view, tmp_path) as back:
        await tell(*[eco(name) for name in names])
        await until(has_settled(server, *names))
        await back.stop()
        before, asked = twins(server), len(server.asked)
        await tell(*[performance(name) for name in names[:30]])
        await asyncio.wait([asyncio.create_task(asyncio.sleep(1.0))])  # the outage itself
        assert twins(server) == before
        await back.start()
        await until(
            lambda: sum(t["profile"] == "performance" for t in twins(server).values()) == 30
        )
        await until(has_settled(server, *names))

    patched = [
        a.name for a in server.asked[asked:] if a.resource == "nodetwins" and a.verb == "patch"
    ]
    assert sorted(patched) == sorted(names[:30])


class Outage:
    """Stops the server, and starts it again at the same address."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        await self._stack.enter_async_context(self._server.listening())

    async def stop(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def applying_through_an_outage(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path
) -> AsyncGenerator[Outage, None]:
    outage = Outage(server)
    await outage.start()
    try:
        async with applying(server, bus, view, tmp):
            yield outage
    finally:
        await outage.stop()
