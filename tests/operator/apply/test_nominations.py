"""The writes of nominations: to the right pod, not over another nomination, and bounded."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bus_kit import ask, until
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_operator.apply.nominations import MOST_PODS, NominationWriter
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_builders import pod
from kube_fields import Patch

pytestmark = pytest.mark.anyio
FAST = NodeState(
    ordinal=1,
    at=0,
    present=True,
    ready=True,
    schedulable=True,
    cpu_milli=96_000,
    profile="performance",
)


class Known:
    """A view that knows these pods, all refused on a sample."""

    is_ready, age_s = True, 0.0

    def __init__(self, server: ApiServer, count: int) -> None:
        self.cluster_state = ClusterState()
        self.cluster_state.nodes["n1"] = FAST
        self.read = list[Sequence[str]]()
        for number in range(count):
            server.put("pods", pod(f"p{number}", workload="performance"), "team")
        for name, tree in server.all("pods").items():
            known = replace(ask(name, performance=True), uid=tree["metadata"]["uid"])
            self.cluster_state.pods[known.uid] = PodState(pod=known)

    async def refusals(self, uids: Sequence[str]) -> list[Refusal]:
        self.read.append(uids)
        return [Refusal(uid, 1, 0, 500) for uid in uids]


def writer(api: Api, view: Known, rate: float = 100) -> NominationWriter:
    settings = cast(ApplierSettings, SimpleNamespace(rate=rate, deadline_s=5.0))
    return NominationWriter(api, cast(View, view), settings)


def nominated(server: ApiServer) -> dict[str, Any]:
    pods = server.all("pods")
    return {
        name: each["status"]["nominatedNodeName"]
        for name, each in pods.items()
        if "nominatedNodeName" in each["status"]
    }


async def test_a_pod_that_is_refused_on_a_sample_gets_a_nomination_and_the_metric_counts_it(
    server: ApiServer, api: Api
) -> None:
    view = Known(server, 1)
    async with background(writer(api, view).run(), "nominations"):
        await until(lambda: nominated(server) == {"p0": "n1"})
        assert metrics.PODS_REFUSED_ON_SAMPLE._value.get() == 1
    counted = metrics.OPERATOR.get_sample_value("joulie_pods_refused_on_sample")
    assert counted is None, "another operator counts them now"


async def test_a_nomination_of_another_client_stays(server: ApiServer, api: Api) -> None:
    view = Known(server, 1)
    theirs = Patch("kube-scheduler", force=True, dry_run=False, subresource="status")
    status = {"status": {"nominatedNodeName": "preempted"}}
    server.objects.apply(server.kind("pods"), "team", "p0", status, theirs)
    failed = metrics.KUBE_WRITES.labels(kind="nomination", outcome="failed")
    before = failed._value.get()
    async with background(writer(api, view).run(), "nominations"):
        await until(lambda: failed._value.get() > before)
    assert nominated(server) == {"p0": "preempted"}


async def test_hostile_numbers_of_pods_cause_few_writes_per_second(
    server: ApiServer, api: Api
) -> None:
    view = Known(server, 300)
    async with background(writer(api, view, rate=10).run(), "nominations"):
        await asyncio.sleep(2.5)
    assert 5 <= len(nominated(server)) <= 40


async def test_pods_beyond_the_bound_take_turns(server: ApiServer, api: Api) -> None:
    view = Known(server, 0)
    view.cluster_state.pods |= {
        f"u{number}": PodState(pod=ask(f"u{number}", performance=True))
        for number in range(2 * MOST_PODS)
    }
    view.cluster_state.nodes.clear()
    made = writer(api, view)
    for _ in range(2):
        await made._refused_on_sample()
    assert [len(uids) for uids in view.read] == [MOST_PODS, MOST_PODS]
    assert len({uid for uids in view.read for uid in uids}) == 2 * MOST_PODS


async def test_an_old_view_nominates_no_pod(server: ApiServer, api: Api) -> None:
    view = Known(server, 1)
    view.age_s = 60.0
    assert await writer(api, view)._refused_on_sample() == []
    assert view.read == []
