"""Changes of requests at an API server: by consent, each in the log, and given back."""

import asyncio
import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bus_kit import CLUSTER
from bus_kit.clock import NOON
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_audit.recompute.answers import RESIZE, RecordedResize, check_resize
from joulie_bus.events import PodUse, ResizeOrdered, ResizeRefused, codec
from joulie_bus.streams.subjects import Stream
from joulie_operator.apply import requests_back
from joulie_operator.apply.requests_back import RequestsBack, give_requests_back
from joulie_operator.apply.resizes import Resizer
from joulie_operator.facts.resizable_pods import CONSENT, OWN, PENDING, RESIZED
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.planning.resizes import Mode
from joulie_projections.energy.use import WorkloadUse
from joulie_projections.state.state import ClusterState
from joulie_projections.store.energy_table import EnergyTable, UseReading
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import granted, joulie_server, namespace, pod

pytestmark = pytest.mark.anyio
HOUR_MS, DAY_NS = 3_600_000, 86_400 * 10**9
NOON_MS = NOON // 1_000_000
OPERATOR = "operator"
LARGE = {"cpu": "4", "memory": "8Gi"}
SMALL = {"cpu": "1500m", "memory": "4916Mi"}  # 1 core x 1.5, 4 GiB x 1.2


class Known:
    """A view whose clock tests turn."""

    is_ready, age_s, now = True, 0.0, NOON

    def __init__(self) -> None:
        self.cluster_state = ClusterState()

    def now_ns(self) -> int:
        return self.now


class Ledger:
    """A ledger with 14 days of pods of `web`."""

    def __init__(self) -> None:
        self.web = WorkloadUse("team", "web")
        for hour in range(14 * 24):
            self.goes_on(hour)

    def goes_on(self, hour: int, wait: int = 0) -> None:
        use = PodUse(b"x", 3600, 1000, 4096, 4096, cpu_wait=wait)
        self.web.add(use, NOON_MS + (hour - 14 * 24) * HOUR_MS)

    @contextlib.contextmanager
    def open(self) -> Generator[EnergyTable, None, None]:
        yield cast(EnergyTable, self)

    def uses(self, _: int) -> UseReading:
        return UseReading([self.web], position=7)


class World:
    """A resizer with exactly the rights of deploy/, and what it looks at."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.view, self.ledger = server, Known(), Ledger()
        self.broker = MemoryBroker(CLUSTER, lambda: self.view.now)
        self.hours = 14 * 24

    def resizer(self, api: Api, mode: Mode = "in-place") -> Resizer:
        bus, view = MemoryLog(self.broker), cast(View, self.view)
        return Resizer(api, bus, CLUSTER, view, self.ledger.open, mode)

    async def looks(self, resizer: Resizer, wait: int = 0) -> None:
        """Twice: a wait is the difference between two looks."""
        for _ in range(2):
            self.hours += 1
            self.ledger.goes_on(self.hours, wait)
            await resizer.look_once()

    def events(self) -> list[Any]:
        records = self.broker.stream(Stream.PLAN).records
        return [codec.decoded(record.data, "plan") for record in records]

    def said(self) -> list[str]:
        return [event.TYPE.removeprefix("plan.") for event in self.events()]

    def requests(self, name: str = "web-0") -> dict[str, str]:
        containers = self.server.all("pods")[name]["spec"]["containers"]
        return dict(containers[0]["resources"]["requests"])

    def mark(self, name: str = "web-0") -> tuple[bool, bool]:
        meta = self.server.all("pods")[name]["metadata"]
        return RESIZED in meta.get("labels", {}), OWN in meta.get("annotations", {})

    def kubelet_defers(self, name: str) -> None:
        self._answers(name, [{"type": PENDING, "reason": "Deferred", "status": "True"}])

    def kubelet_carries_out(self, name: str) -> None:
        self._answers(name, [])

    def _answers(self, name: str, conditions: list[dict[str, str]]) -> None:
        status = {"metadata": {"name": name}, "status": {"conditions": conditions}}
        self.server.put("pods", status, "team")

    def consents(self, name: str, to: str | None) -> None:
        patch = {"metadata": {"name": name, "labels": {CONSENT: to}}}
        self.server.put("pods", patch, "team")


def web(name: str = "web-0", **labels: str) -> dict[str, Any]:
    made = pod(name, node="n1")
    made["metadata"]["labels"] = labels
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": {"requests": LARGE}}]
    made["status"]["qosClass"] = "Burstable"
    return made


@pytest.fixture
def server() -> ApiServer:
    made = joulie_server()
    rights = granted("rbac.yaml") | granted("rbac-requests.yaml")
    made.users[OPERATOR] = ("system:serviceaccount:joulie-system:joulie-operator", rights)
    made.put("namespaces", namespace("team"))
    return made


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> Any:
    async with server.listening(), Api.of(server.kubeconfig(tmp_path, OPERATOR)) as made:
        yield made


@pytest.fixture
def world(server: ApiServer) -> World:
    return World(server)


async def test_a_pod_that_consents_gets_what_it_uses_and_has_its_own_back_without_consent(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    world.server.put("pods", web("web-1"), "team")
    resizer = world.resizer(api)

    await world.looks(resizer)
    assert (world.requests(), world.mark()) == (SMALL, (True, True))
    assert world.said() == ["resize-ordered", "resized"]
    assert world.requests("web-1") == LARGE  # it never consented

    world.consents("web-0", None)
    await world.looks(resizer)
    assert (world.requests(), world.mark()) == (LARGE, (False, False))
    assert world.said() == ["resize-ordered", "resized"] * 2
    assert world.events()[2].change == "give-back"
    assert world.requests("web-1") == LARGE
    assert not [each for each in world.server.writes() if each.name == "web-1"]


async def test_the_namespace_consents_for_its_pods_but_those_that_are_off(
    world: World, api: Api
) -> None:
    labels = {"labels": {CONSENT: "in-place"}}
    world.server.put("namespaces", {"metadata": {"name": "team", **labels}})
    world.server.put("pods", web(), "team")
    world.server.put("pods", web("web-1", **{CONSENT: "off"}), "team")

    await world.looks(world.resizer(api))

    assert world.requests() != LARGE
    assert world.requests("web-1") == LARGE


async def test_another_operator_continues_from_the_pods_alone(world: World, api: Api) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    await world.looks(world.resizer(api))
    lowered = world.requests()

    await world.looks(world.resizer(api))
    assert (world.requests(), len(world.events())) == (lowered, 2)
    await world.looks(world.resizer(api, "off"))
    assert (world.requests(), world.mark()) == (LARGE, (False, False))


async def test_where_processes_wait_the_cores_come_back_at_the_next_look(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    resizer = world.resizer(api)
    await world.looks(resizer)
    world.ledger.goes_on(world.hours + 1, wait=120)

    await resizer.look_once()

    assert world.requests()["cpu"] == "4"
    assert world.requests()["memory"] != LARGE["memory"]
    assert world.events()[-2].because.startswith("processes waited for processors in 12 %")


async def test_beside_an_autoscaler_that_cannot_be_read_pods_of_its_namespace_keep_their_requests(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    unreadable = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": "web"}}
    world.server.put("horizontalpodautoscalers", unreadable, "team")
    resizer = world.resizer(api)

    await world.looks(resizer)
    [refused] = world.events()
    assert (refused.reason, world.requests()) == ("autoscaler-unreadable", LARGE)
    assert "HorizontalPodAutoscaler h cannot be read" in refused.because

    world.server.delete("horizontalpodautoscalers", "h", "team")
    await world.looks(resizer)
    assert world.requests() == SMALL


async def test_a_reason_is_published_once_until_it_changes(world: World, api: Api) -> None:
    world.server.put("pods", web("db-0", **{CONSENT: "in-place"}), "team")
    resizer = world.resizer(api)
    await world.looks(resizer)
    world.consents("db-0", "sometimes")
    await world.looks(resizer)

    found = [each for each in world.events() if isinstance(each, ResizeRefused)]
    assert [each.reason for each in found] == ["no-use", "label"]


async def test_with_recommend_nothing_is_written_and_the_log_has_what_would_be(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    await world.looks(world.resizer(api, "recommend"))

    [refused] = world.events()
    assert refused.reason == "recommend"
    assert "4 -> 1.5 cores" in refused.because
    assert world.server.writes() == []


async def test_what_the_api_server_refuses_is_in_the_log_and_tried_again_later(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    why = Fault(lambda asked: asked.resource == "pods/resize", 403, "Forbidden", times=9)
    world.server.faults.append(why)
    resizer = world.resizer(api)
    await world.looks(resizer)
    await world.looks(resizer)

    assert world.said() == ["resize-ordered", "resize-refused"]
    assert world.events()[-1].reason == "api-server"
    assert (world.requests(), world.mark()) == (LARGE, (False, False))


async def test_a_release_gives_own_requests_back_and_names_what_is_deferred(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("web-0", "web-1", "web-2"):
        world.server.put("pods", web(name, **{CONSENT: "in-place"}), "team")
    await world.looks(world.resizer(api))
    world.kubelet_defers("web-2")

    async def kubelets_answer() -> None:
        while any(world.mark(f"web-{number}")[0] for number in range(3)):
            await asyncio.sleep(0.01)
        world.kubelet_defers("web-1")
        world.kubelet_carries_out("web-2")

    monkeypatch.setattr(requests_back, "ANSWER_S", 0.5)
    done, _ = await asyncio.gather(give_requests_back(api), kubelets_answer())

    assert done == RequestsBack(3, ["team/web-1 (the kubelet answers Deferred)"])
    for name in ("web-0", "web-1", "web-2"):
        assert (world.requests(name), world.mark(name)) == (LARGE, (False, False))


async def test_a_pod_that_cannot_be_read_does_not_end_a_release(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    await world.looks(world.resizer(api))
    unreadable = {"metadata": {"name": "odd", "labels": {RESIZED: "true"}}, "spec": {"overhead": 7}}
    world.server.put("pods", unreadable, "team")
    monkeypatch.setattr(requests_back, "ANSWER_S", 0.0)

    assert await give_requests_back(api) == RequestsBack(1, [])
    assert world.requests() == LARGE


async def test_each_order_is_computed_again_and_a_forged_one_is_found(
    world: World, api: Api
) -> None:
    world.server.put("pods", web(**{CONSENT: "in-place"}), "team")
    await world.looks(world.resizer(api))
    [order] = [each for each in world.events() if isinstance(each, ResizeOrdered)]

    assert check_resize(RecordedResize(1, order)) is None
    assert order.use is not None
    assert order.use.position == 7
    mismatch = check_resize(RecordedResize(1, replace(order, after=order.original)))
    assert mismatch is not None
    assert mismatch.kind == RESIZE
