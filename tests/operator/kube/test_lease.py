import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus_kit import CLUSTER, until
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings, LeaseSettings
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.kube.lease import Lease
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import joulie_server, node
from kube_requests import Asked

pytestmark = pytest.mark.anyio
SETTINGS = LeaseSettings(duration_s=0.6)


class Candidate:
    """Counts how often it leads, and records whether it leads now."""

    def __init__(self, api: Api, name: str, settings: LeaseSettings = SETTINGS) -> None:
        self.name = name
        self.times = 0
        self.leads = False
        self.lease = Lease(api, settings, name)

    async def work(self) -> None:
        self.times += 1
        self.leads = True
        try:
            await asyncio.Event().wait()
        finally:
            self.leads = False


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer, None]:
    async with ApiServer().listening() as running:
        yield running


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncGenerator[Api, None]:
    async with Api.of(server.kubeconfig(tmp_path)) as opened:
        yield opened


@contextlib.asynccontextmanager
async def standing(api: Api, name: str) -> AsyncGenerator[Candidate, None]:
    candidate = Candidate(api, name)
    async with background(candidate.lease.lead(candidate.work), name):
        yield candidate


def holder(server: ApiServer) -> tuple[str, int]:
    spec = server.all("leases")["joulie-operator"]["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


def reports_a_stop() -> bool:
    samples = next(iter(metrics.PLANS_STOPPED.collect())).samples
    return any(sample.value for sample in samples if sample.labels["reason"] == "lease")


async def test_the_first_operator_leads_and_the_second_stands_by(
    server: ApiServer, api: Api
) -> None:
    async with standing(api, "a") as one:
        await until(lambda: one.leads)
        async with standing(api, "b") as other:
            await until(lambda: server.count("update", "leases") >= 10)

            assert (one.leads, other.leads) == (True, False)
            assert not reports_a_stop()
            assert holder(server) == ("a", 0)


async def test_a_released_lease_is_acquired_at_once(server: ApiServer, api: Api) -> None:
    async with standing(api, "b") as other:
        async with standing(api, "a") as one:
            await until(lambda: one.leads or other.leads)
            first = "a" if one.leads else "b"
        await until(lambda: other.leads)

    assert first in ("a", "b")
    assert holder(server)[0] == ""


async def test_a_leader_whose_last_renewal_was_cut_off_by_its_stop_releases_the_lease(
    server: ApiServer, api: Api
) -> None:
    patient = LeaseSettings(duration_s=60)  # no renewal comes between
    candidate = Candidate(api, "a", patient)
    async with background(candidate.lease.lead(candidate.work), "a"):
        await until(lambda: candidate.leads)
        renewed = {"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}}
        server.put("leases", {"metadata": {"name": "joulie-operator"}, **renewed}, "default")

    assert holder(server)[0] == ""


async def test_a_lease_that_is_not_renewed_is_acquired_after_its_duration(
    server: ApiServer, api: Api
) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 4}
    meta = {"name": "joulie-operator"}
    server.put("leases", {"metadata": meta, "spec": spec}, "default")
    async with standing(api, "a") as one:
        await until(lambda: server.count("get", "leases") >= 3)
        early = one.leads
        await until(lambda: one.leads)

        assert (early, holder(server)) == (False, ("a", 5))


async def test_a_renewal_by_a_skewed_clock_counts(server: ApiServer, api: Api) -> None:
    meta = {"name": "joulie-operator"}

    def renewed(number: int) -> None:
        at = f"1999-01-01T00:00:{number:02}.000000Z"
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 1, "renewTime": at}
        server.put("leases", {"metadata": meta, "spec": spec}, "default")

    renewed(0)
    async with standing(api, "a") as one:
        for number in range(1, 8):
            before = server.count("get", "leases")
            await until(lambda: server.count("get", "leases") > before)  # noqa: B023
            renewed(number)

            assert not one.leads


async def test_a_leader_that_cannot_renew_stops_before_another_may_start(
    server: ApiServer, api: Api
) -> None:
    def renewals_of_a(asked: Asked) -> bool:
        return asked.verb == "update"

    async with standing(api, "a") as one:
        await until(lambda: one.leads)
        server.faults.append(Fault(renewals_of_a, 503, times=1000))
        await until(lambda: not one.leads)
        held = holder(server)
        await until(reports_a_stop)
        server.faults.clear()
        await until(lambda: one.leads)
        assert not reports_a_stop()

    assert held[0] == "a"
    assert one.times == 2


async def test_work_ends_before_another_operator_may_start_though_calls_hang(
    server: ApiServer, api: Api
) -> None:
    """At two thirds of the duration, counted from the last successful renewal."""
    duration_s = 3.0
    candidate = Candidate(api, "a", LeaseSettings(duration_s=duration_s))
    async with background(candidate.lease.lead(candidate.work), "a"):
        await until(lambda: server.count("update", "leases") >= 2)
        renewed = time.monotonic()
        server.slowness_s = 30
        await until(lambda: not candidate.leads)
        worked_s = time.monotonic() - renewed
        server.slowness_s = 0

    assert worked_s < duration_s


async def test_watching_planning_and_writing_end_with_the_lease_though_their_calls_hang(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server, cluster = joulie_server(), ObservedCluster.empty()
    server.put("nodes", node("n1"))
    ended: list[float] = []

    async def work() -> None:
        applier = Applier(cluster_api, view, cluster, {}, Source.of().load(ApplierSettings))
        operator = Operator(bus, CLUSTER, view, Source.of().load(OperatorSettings))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(watch_cluster(cluster_api, bus, CLUSTER, view, cluster))
                tasks.create_task(applier.run())
                tasks.create_task(operator.run())
        finally:
            ended.append(time.monotonic())

    async with server.listening(), Api.of(server.kubeconfig(tmp_path)) as cluster_api:
        lease = Lease(cluster_api, LeaseSettings(duration_s=3), "a")
        async with background(lease.lead(work), "a"):
            await until(
                lambda: "n1" in view.cluster_state.nodes and len(server.all("nodetwins")) == 1
            )
            before = server.count("update", "leases")
            await until(lambda: server.count("update", "leases") > before)
            renewed = time.monotonic()
            server.slowness_s = 30
            await until(lambda: bool(ended))
            server.slowness_s = 0

    assert ended[0] - renewed < 3 * 2 / 3 + 0.3


async def test_a_leader_that_lost_the_lease_to_another_stops_at_once(
    server: ApiServer, api: Api
) -> None:
    async with standing(api, "a") as one:
        await until(lambda: one.leads)
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": 60}
        meta = {"name": "joulie-operator"}
        server.put("leases", {"metadata": meta, "spec": spec}, "default")
        await until(lambda: not one.leads)

    assert server.all("leases")["joulie-operator"]["spec"]["holderIdentity"] == "thief"


async def test_a_leader_that_was_too_busy_to_renew_says_so(api: Api) -> None:
    with capture_logs() as lines:
        async with standing(api, "a") as one:
            await until(lambda: one.leads)
            time.sleep(SETTINGS.duration_s)  # noqa: ASYNC251
            await until(lambda: one.times == 2)

    assert [line["why"] for line in lines if line["event"] == "lease_lost"] == [
        "not renewed for 0.4 s: this process did not get to it"
    ]


async def test_an_error_of_the_work_is_raised_and_releases_the_lease(
    server: ApiServer, api: Api
) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await Lease(api, SETTINGS, "a").lead(broken)

    assert holder(server)[0] == ""


async def test_of_many_candidates_exactly_one_leads(server: ApiServer, api: Api) -> None:
    async with contextlib.AsyncExitStack() as stack:
        all_of_them = [await stack.enter_async_context(standing(api, f"c{n}")) for n in range(8)]
        most = 0
        async with asyncio.timeout(60):
            while server.count("update", "leases") < 6:
                most = max(most, sum(each.leads for each in all_of_them))
                await asyncio.sleep(0.005)

    assert most == 1
    assert sum(each.times for each in all_of_them) == 1
