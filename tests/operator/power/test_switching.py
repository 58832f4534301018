"""The loop that switches nodes: after which checks, how often, and what it reports."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, plan_made
from joulie_bus.errors import SwitchFailed
from joulie_bus.runtime import metrics
from joulie_operator.controllers.controller_file import AutoscalerEntry
from joulie_operator.desired.objects import EXCLUDED, EXCLUSION_LABEL
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.planning.rules import Rules, values_of
from joulie_operator.power import switching
from joulie_operator.power.switching import PowerSwitch
from joulie_projections.state.state import CLUSTER, ClusterRow, ClusterState, NodeState
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import joulie_server, node, pod

pytestmark = pytest.mark.anyio
ASLEEP = NodeState(ordinal=0, at=NOON, present=True, power_state="asleep", power_at=NOON)
LATER = NOON + 60 * SECOND


class Controllers:
    """The power of each node, and the orders; a restart of the operator does not change it."""

    def __init__(self) -> None:
        self.on, self.orders, self.broken = dict[str, bool](), list[tuple[str, bool]](), False

    async def is_on(self, name: str) -> bool | None:
        if self.broken:
            raise SwitchFailed("the BMC does not answer")
        return self.on.get(name, True)

    async def switch_on(self, name: str) -> None:
        await self._order(name, True)

    async def switch_off(self, name: str) -> None:
        await self._order(name, False)

    async def _order(self, name: str, on: bool) -> None:
        self.orders.append((name, on))
        self.on[name] = on


class Known:
    is_ready, age_s = True, 0.0

    def __init__(self, **nodes: NodeState) -> None:
        self.cluster_state = ClusterState()
        self.cluster_state.nodes.update(nodes)
        rules = Rules(policy="consolidate_and_sleep", policy_numbers="wake_timeout_s=900")
        made = replace(plan_made(), settings=values_of(rules))
        self.cluster_state.cluster[CLUSTER] = ClusterRow(plan=made)


@pytest.fixture
def server() -> ApiServer:
    """Two nodes as the operator has labelled them."""
    made = joulie_server()
    for name in ("n1", "n2"):
        made.put("nodes", labelled(name))
    return made


def labelled(name: str) -> dict[str, Any]:
    made = node(name)
    made["metadata"]["labels"][EXCLUSION_LABEL] = EXCLUDED
    return made


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    made = Controllers()
    monkeypatch.setattr(switching, "executor_of", lambda *_: made)
    return made


def switch(api: Api, view: Known, now: int = LATER) -> PowerSwitch:
    return PowerSwitch(api, cast(View, view), [AutoscalerEntry()], lambda: now)


async def test_a_sleeping_node_without_pods_is_switched_off_once(
    api: Api, controllers: Controllers
) -> None:
    view = Known(n1=ASLEEP)
    await switch(api, view).switch_once()
    await switch(api, view).switch_once()  # another process, after a kill

    assert controllers.orders == [("n1", False)]


@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown"])
async def test_a_node_with_a_pod_stays_on(
    server: ApiServer, api: Api, controllers: Controllers, phase: str
) -> None:
    server.put("pods", pod("p1", node="n1", phase=phase), "team")

    await switch(api, Known(n1=ASLEEP)).switch_once()

    assert controllers.orders == []


async def test_finished_pods_and_pods_of_daemon_sets_keep_no_node_on(
    server: ApiServer, api: Api, controllers: Controllers
) -> None:
    server.put("pods", pod("done", node="n1", phase="Succeeded"), "team")
    server.put("pods", daemon("agent", "n1"), "team")

    await switch(api, Known(n1=ASLEEP)).switch_once()

    assert controllers.orders == [("n1", False)]


def daemon(name: str, on: str) -> dict[str, Any]:
    made = pod(name, node=on)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    made["spec"]["affinity"] = {"nodeAffinity": affinity}
    return made


@pytest.mark.parametrize(
    ("state", "now"),
    [
        pytest.param(ASLEEP, NOON + SECOND, id="ordered a second ago"),
        pytest.param(replace(ASLEEP, schedulable=True), LATER, id="not cordoned yet"),
        pytest.param(replace(ASLEEP, power_state=""), LATER, id="awake by the plan"),
        pytest.param(replace(ASLEEP, present=False), LATER, id="deleted"),
    ],
)
async def test_a_node_is_not_switched_off(
    api: Api, controllers: Controllers, state: NodeState, now: int
) -> None:
    await switch(api, Known(n1=state), now).switch_once()

    assert controllers.orders == []


async def test_a_node_that_would_count_as_broken_is_not_switched_off(
    server: ApiServer, api: Api, controllers: Controllers
) -> None:
    server.put("nodes", {"metadata": {"name": "n1", "labels": {EXCLUSION_LABEL: None}}})
    await switch(api, Known(n1=ASLEEP)).switch_once()
    before = list(controllers.orders)
    server.put("nodes", {"metadata": {"name": "n1", "labels": {EXCLUSION_LABEL: "of another"}}})
    await switch(api, Known(n1=ASLEEP)).switch_once()

    assert (before, controllers.orders) == ([], [("n1", False)])


async def test_a_waking_node_is_switched_on(api: Api, controllers: Controllers) -> None:
    controllers.on["n1"] = False
    view = Known(n1=replace(ASLEEP, power_state="waking"))
    await switch(api, view).switch_once()
    await switch(api, view).switch_once()

    assert controllers.orders == [("n1", True)]


async def test_a_controller_that_does_not_answer_is_asked_again_later(
    api: Api, controllers: Controllers
) -> None:
    controllers.broken = True
    failed = metrics.POWER_SWITCHES.labels(order="off", outcome="failed")
    before, made = failed._value.get(), switch(api, Known(n1=ASLEEP))
    await made.switch_once()
    await made.switch_once()  # within the pause

    assert failed._value.get() == before + 1
    assert controllers.orders == []


ITEMS = b'{"metadata": {"resourceVersion": "1"}, "items": [%s]}'


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"no JSON", id="no JSON"),
        pytest.param(ITEMS % b'{"metadata": {"name": 7}}', id="another type"),
        pytest.param(ITEMS % b'{"metadata": {"name": "\xff"}}', id="no UTF-8"),
        pytest.param(b"[" * 10**5, id="deep"),
    ],
)
async def test_an_answer_that_cannot_be_read_keeps_the_node_on_and_the_others_in_turn(
    server: ApiServer, api: Api, controllers: Controllers, broken: bytes
) -> None:
    server.faults.append(Fault(lambda asked: asked.verb == "list", body=broken))
    failed = metrics.POWER_SWITCHES.labels(order="off", outcome="failed")._value.get()

    await switch(api, Known(n1=ASLEEP, n2=ASLEEP)).switch_once()

    assert len(controllers.orders) == 1
    assert metrics.POWER_SWITCHES.labels(order="off", outcome="failed")._value.get() == failed + 1


async def test_a_node_that_does_not_come_back_is_reported_once_and_left_alone(
    server: ApiServer, api: Api, controllers: Controllers
) -> None:
    controllers.on["n1"] = False
    view = Known(n1=replace(ASLEEP, power_state="waking"))
    made = switch(api, view, NOON + 1000 * SECOND)
    await made.switch_once()
    await made.switch_once()

    assert controllers.orders == []
    (event,) = server.all("events").values()
    assert (event["reason"], event["regarding"]["name"]) == ("NodeDidNotWake", "n1")
    assert metrics.NODES_LOST._value.get() == 1


async def test_autoscalers_leave_a_node_alone_while_it_is_awake(
    server: ApiServer, api: Api
) -> None:
    await switch(api, Known(n1=replace(ASLEEP, power_state="waking"))).switch_once()
    protected = server.all("nodes")["n1"]["metadata"]["annotations"]
    await switch(api, Known(n1=ASLEEP)).switch_once()

    assert set(protected) == {
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "karpenter.sh/do-not-disrupt",
    }
    assert not server.all("nodes")["n1"]["metadata"].get("annotations")
