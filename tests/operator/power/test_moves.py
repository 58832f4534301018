"""Moves that are carried out: what is evicted, what is awaited, and what ends the run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bus_kit import NOON, SECOND
from joulie_bus.errors import AlreadyMoving
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.power.cordons import FIELDS_OF_MOVES, HELD_S, UNTIL
from joulie_operator.power.move_outcomes import Ordered, Outcome
from joulie_operator.power.moves import TRIES, Mover, Time
from joulie_operator.resources.timestamps import rfc3339
from kube_api import ApiServer, Fault
from kube_builders import Tree, node
from kube_requests import Asked

pytestmark = pytest.mark.anyio
NAMESPACE = "team"
BOUND: Tree = {"spec": {"nodeName": "n1"}}


def owner(kind: str = "ReplicaSet", uid: str = "set-1") -> Tree:
    return {"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": True}


class Cluster:
    """Three nodes; its controller replaces a pod that is evicted, and its scheduler binds it."""

    def __init__(self, server: ApiServer, api: Api) -> None:
        self.server, self.api = server, api
        self.goes_to: dict[str, str | None] = {}  # the node; "": pending, None: no replacement
        self.evicted: list[tuple[str, bool, list[str]]] = []  # of a pod: cordoned, with all others
        self.now_s, self.said = 0.0, list[str]()
        self.told: list[tuple[str, Outcome]] = []
        self.at_sleep: Callable[[], object] | None = None
        self.named = ""  # of the next replacement
        for number in range(3):
            server.put("nodes", node(f"n{number}"))
        server.objects.listeners.append(self._changed)

    def pod(self, name: str, on: str = "n0", by: Tree | None = None, **metadata: Any) -> Ordered:
        metadata = {"name": name, "ownerReferences": [by or owner()], **metadata}
        spec = {"containers": [{"name": "c"}], "terminationGracePeriodSeconds": 30}
        placed = {"nodeName": on} if on else {}
        made = self.server.put("pods", {"metadata": metadata, "spec": spec | placed}, NAMESPACE)
        return Ordered(made["metadata"]["uid"], NAMESPACE, name, on, f"why {name}")

    def node(self, name: str) -> Tree:
        return self.server.all("nodes")[name]

    def cordoned(self) -> list[str]:
        nodes = self.server.all("nodes").items()
        return [name for name, tree in nodes if tree.get("spec", {}).get("unschedulable")]

    def mover(self) -> Mover:
        clocks = Time(lambda: NOON + int(self.now_s * SECOND), lambda: self.now_s, self._sleep)
        return Mover(self.api, {"fast": "performance"}, self.said.append, clocks)

    async def carry_out(self, *moves: Ordered) -> list[Outcome]:
        told = self.told
        return await self.mover().carry_out(
            moves, lambda move, outcome: told.append((move.name, outcome))
        )

    def refuse(self, resource: str, status: int, times: int = 1, verb: str = "") -> None:
        def is_it(asked: Asked) -> bool:
            return asked.resource == resource and asked.verb == (verb or asked.verb)

        self.server.faults.append(Fault(is_it, status, times=times))

    def notes(self) -> list[str]:
        events = self.server.all("events").values()
        return [each["note"] for each in events if each["reason"] == "PodEvicted"]

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.at_sleep is not None:
            self.at_sleep()
        await asyncio.sleep(0)

    def _changed(self) -> None:
        change = self.server.objects.history[-1]
        if change.type != "DELETED" or change.kind.plural != "pods":
            return
        meta, spec = change.after["metadata"], change.after["spec"]
        is_cordoned = self.node(spec["nodeName"])["spec"].get("unschedulable", False)
        self.evicted.append((meta["name"], is_cordoned, self.cordoned()))
        place = self.goes_to.get(meta["name"], "n2")
        if place is not None:
            [by] = meta["ownerReferences"]
            self.pod(self.named or f"{meta['name']}-new", place, by)


@pytest.fixture
def cluster(server: ApiServer, api: Api) -> Cluster:
    return Cluster(server, api)


async def test_a_pod_is_evicted_from_a_cordoned_node_and_its_new_place_reported(
    cluster: Cluster,
) -> None:
    cluster.goes_to = {"a": "n1"}
    first, second = cluster.pod("a"), cluster.pod("b")

    found = await cluster.carry_out(first, second)

    assert found == [Outcome("moved", "n1"), Outcome("moved", "n2")]
    assert cluster.told == [("a", found[0]), ("b", found[1])]
    assert cluster.evicted == [("a", True, ["n0"]), ("b", True, ["n0"])]
    assert cluster.cordoned() == []
    assert UNTIL not in cluster.node("n0")["metadata"].get("annotations", {})


async def test_nodes_are_emptied_one_after_the_other_in_the_order_of_the_plan(
    cluster: Cluster,
) -> None:
    moves = [cluster.pod("c", "n1"), cluster.pod("a", "n0"), cluster.pod("d", "n1")]

    await cluster.carry_out(*moves)

    assert cluster.evicted == [("c", True, ["n1"]), ("a", True, ["n0"]), ("d", True, ["n1"])]


async def test_an_event_of_the_node_says_why_a_pod_was_evicted(cluster: Cluster) -> None:
    await cluster.carry_out(cluster.pod("a"))

    assert cluster.notes() == ["why a"]
    [event] = cluster.server.all("events").values()
    assert event["regarding"]["uid"] == cluster.node("n0")["metadata"]["uid"]
    assert event["type"] == "Normal"


async def test_an_event_that_is_refused_ends_no_run(cluster: Cluster) -> None:
    cluster.refuse("events", 403)

    [outcome] = await cluster.carry_out(cluster.pod("a"))

    assert outcome.what == "moved"
    assert "no Event about team/a" in cluster.said[0]


async def test_the_cordon_of_another_stays(cluster: Cluster) -> None:
    cluster.server.put("nodes", {"metadata": {"name": "n0"}, "spec": {"unschedulable": True}})

    [outcome] = await cluster.carry_out(cluster.pod("a"))

    assert outcome.what == "moved"
    assert cluster.cordoned() == ["n0"]
    assert cluster.server.count("patch", "nodes") == 0


@pytest.mark.parametrize(("place", "what"), [("", "waiting"), (None, "lost")])
async def test_a_replacement_without_a_place_ends_the_run(
    cluster: Cluster, place: str | None, what: str
) -> None:
    cluster.goes_to = {"a": place}
    moves = [cluster.pod("a"), cluster.pod("b"), cluster.pod("c", "n1")]

    found = await cluster.carry_out(*moves)

    assert [each.what for each in found] == [what, "not-tried", "not-tried"]
    assert [name for name, *_ in cluster.evicted] == ["a"]
    assert cluster.cordoned() == []


async def test_a_replacement_has_time_for_its_place_from_when_it_came(cluster: Cluster) -> None:
    """The old pod may take its grace period, and the controller waits for its end."""
    cluster.goes_to = {"a": None}
    move = cluster.pod("a")

    def later() -> None:
        if cluster.now_s == 149.0:
            cluster.pod("a-new", "")
        if cluster.now_s == 260.0:
            cluster.server.put("pods", {"metadata": {"name": "a-new"}} | BOUND, NAMESPACE)

    cluster.at_sleep = later
    assert await cluster.carry_out(move) == [Outcome("moved", "n1")]


async def test_only_a_new_pod_of_the_same_controller_is_a_replacement(cluster: Cluster) -> None:
    cluster.goes_to = {"a": None}
    cluster.pod("sibling", "n1")

    def elsewhere() -> None:
        if "stranger" not in cluster.server.all("pods"):
            cluster.pod("stranger", "n1", owner(uid="set-2"))
            cluster.pod("ending", "n1", deletionTimestamp="2026-01-01T00:00:00Z")

    cluster.at_sleep = elsewhere
    [outcome] = await cluster.carry_out(cluster.pod("a"))

    assert outcome.what == "lost"


async def test_a_pod_of_a_stateful_set_is_replaced_by_one_of_its_name(cluster: Cluster) -> None:
    by = owner("StatefulSet")
    move = cluster.pod("db-0", by=by)
    cluster.named = "db-1"  # added meanwhile
    cluster.at_sleep = lambda: cluster.pod("db-0", "n1", by)

    assert await cluster.carry_out(move) == [Outcome("moved", "n1")]


async def test_pods_that_changed_since_the_plan_are_left_out_and_the_run_goes_on(
    cluster: Cluster,
) -> None:
    gone = cluster.pod("gone")
    cluster.server.delete("pods", "gone", NAMESPACE)
    cluster.evicted.clear()
    another = cluster.pod("another")._replace(uid="another-uid")
    ending = cluster.pod("ending", deletionTimestamp="2026-01-01T00:00:00Z")
    forbids = {"karpenter.sh/do-not-disrupt": "true"}
    kept = cluster.pod("kept", annotations=forbids)
    moved = cluster.pod("moved")

    found = await cluster.carry_out(gone, another, ending, kept, moved)

    assert [each.what for each in found] == ["skipped", "skipped", "skipped", "kept", "moved"]
    assert "do-not-disrupt" in found[3].why
    assert [name for name, *_ in cluster.evicted] == ["moved"]


async def test_the_class_of_the_namespace_is_judged_again(cluster: Cluster) -> None:
    made = cluster.server.put("pods", {"metadata": {"name": "a"}, "spec": {}}, "fast")

    [outcome] = await cluster.carry_out(Ordered(made["metadata"]["uid"], "fast", "a", "n0", ""))

    assert outcome == Outcome("kept", why="it is of class performance")


async def test_the_eviction_names_the_uid_so_that_no_successor_is_evicted(
    cluster: Cluster,
) -> None:
    """Between the judgement and the eviction another pod takes the name."""
    move = cluster.pod("a")

    def succeed(asked: Asked) -> bool:
        if asked.resource == "pods/eviction":
            cluster.goes_to = {"a": None}
            cluster.server.delete("pods", "a", NAMESPACE)
            cluster.evicted.clear()
            cluster.pod("a")
        return False

    cluster.server.faults.append(Fault(succeed))
    [outcome] = await cluster.carry_out(move)

    assert outcome.what == "skipped"
    assert cluster.evicted == []
    assert "a" in cluster.server.all("pods")


async def test_a_budget_that_allows_the_eviction_later_only_delays_it(cluster: Cluster) -> None:
    cluster.refuse("pods/eviction", 429, TRIES - 1)

    [outcome] = await cluster.carry_out(cluster.pod("a"))

    assert outcome.what == "moved"
    assert cluster.now_s > 0


async def test_a_pod_that_a_budget_keeps_stays_and_the_run_goes_on(cluster: Cluster) -> None:
    cluster.refuse("pods/eviction", 429, TRIES)

    found = await cluster.carry_out(cluster.pod("a"), cluster.pod("b"))

    assert [each.what for each in found] == ["kept", "moved"]
    assert [name for name, *_ in cluster.evicted] == ["b"]


@pytest.mark.parametrize(
    ("resource", "status", "verb", "times"),
    [("pods/eviction", 403, "", 1), ("nodes", 403, "patch", 99), ("pods", 500, "list", 1)],
)
async def test_what_fails_for_all_pods_ends_the_run_and_leaves_no_cordon(
    cluster: Cluster, resource: str, status: int, verb: str, times: int
) -> None:
    cluster.refuse(resource, status, times, verb)

    found = await cluster.carry_out(cluster.pod("a"), cluster.pod("b"))

    assert [each.what for each in found] == ["failed", "not-tried"]
    assert cluster.evicted == []
    assert cluster.cordoned() == []
    assert cluster.said == []


async def test_a_call_that_fails_while_a_replacement_is_awaited_is_repeated(
    cluster: Cluster,
) -> None:
    cluster.goes_to = {"a": ""}

    def later() -> None:
        cluster.server.put("pods", {"metadata": {"name": "a-new"}} | BOUND, NAMESPACE)

    cluster.at_sleep = later
    mover, api = cluster.mover(), cluster.api
    pages, calls = api.pages, list[str]()

    def failing(path: str, query: Any = None) -> Any:
        calls.append(path)
        if len(calls) == 3:  # of the nodes, of the siblings before, of those after
            raise TimeoutError
        return pages(path, query)

    api.pages = failing  # type: ignore[method-assign]
    found = await mover.carry_out([cluster.pod("a")], lambda *_: None)

    assert found == [Outcome("moved", "n1")]


async def test_a_run_that_is_interrupted_uncordons_and_reports(cluster: Cluster) -> None:
    cluster.goes_to = {"b": ""}
    moves = [cluster.pod("a"), cluster.pod("b"), cluster.pod("c")]
    task = asyncio.create_task(cluster.carry_out(*moves))
    cluster.at_sleep = lambda: task.cancel()

    found = await task

    assert [each.what for each in found] == ["moved", "interrupted", "not-tried"]
    assert found[1].why == "it was evicted, and its replacement was not awaited"
    assert cluster.cordoned() == []


async def test_an_interruption_while_the_cordon_is_removed_waits_for_it(cluster: Cluster) -> None:
    tasks = list[asyncio.Task[list[Outcome]]]()

    def interrupt(asked: Asked) -> bool:
        """The call fails, too."""
        is_it = (asked.verb, asked.resource) == ("patch", "nodes") and bool(cluster.evicted)
        if is_it:
            tasks[0].cancel()
        return is_it

    cluster.server.faults.append(Fault(interrupt))
    tasks.append(asyncio.create_task(cluster.carry_out(cluster.pod("a"), cluster.pod("b", "n1"))))

    assert [each.what for each in await tasks[0]] == ["moved", "not-tried"]
    assert cluster.cordoned() == []


async def test_the_cordon_of_a_run_that_was_killed_is_removed(cluster: Cluster) -> None:
    move = cluster.pod("a", "n1")
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n0", "annotations": {UNTIL: rfc3339(NOON + HELD_S * SECOND)}},
        "spec": {"unschedulable": True},
    }
    await cluster.api.apply("/api/v1/nodes/n0", body, manager=FIELDS_OF_MOVES)
    assert cluster.cordoned() == ["n0"]

    cluster.now_s = HELD_S - 1.0
    with pytest.raises(AlreadyMoving, match="n0"):
        await cluster.carry_out(move)
    assert cluster.evicted == []

    cluster.now_s = HELD_S + 1.0
    await cluster.carry_out(move)
    assert cluster.evicted == [("a", True, ["n1"])]
    assert "n0 is uncordoned" in cluster.said[0]
    assert cluster.cordoned() == []


async def test_a_cordon_is_renewed_while_a_pod_ends(cluster: Cluster) -> None:
    """So that no other run takes it for that of a killed one."""
    cluster.goes_to = {"a": None}
    until = set[str]()

    def note() -> None:
        until.add(cluster.node("n0")["metadata"]["annotations"][UNTIL])

    cluster.at_sleep = note
    await cluster.carry_out(cluster.pod("a"))

    assert max(until) >= rfc3339(NOON + (HELD_S + 120) * SECOND)


async def test_a_cordon_that_cannot_be_removed_is_reported(cluster: Cluster) -> None:
    def breaks(asked: Asked) -> bool:
        return asked.resource == "nodes" and asked.verb == "patch" and bool(cluster.evicted)

    cluster.server.faults.append(Fault(breaks, times=100))
    mover = cluster.mover()
    [outcome] = await mover.carry_out([cluster.pod("a")], lambda *_: None)

    assert outcome.what == "moved"
    assert mover.cordons.is_left
    assert "kubectl uncordon n0" in cluster.said[0]


async def test_a_node_that_is_deleted_meanwhile_is_not_made_again(cluster: Cluster) -> None:
    def delete() -> None:
        if "n0" in cluster.server.all("nodes"):
            cluster.server.delete("nodes", "n0")
            cluster.server.put("pods", {"metadata": {"name": "a-new"}} | BOUND, NAMESPACE)

    cluster.goes_to, cluster.at_sleep = {"a": ""}, delete
    mover = cluster.mover()
    [outcome] = await mover.carry_out([cluster.pod("a")], lambda *_: None)

    assert outcome == Outcome("moved", "n1")
    assert "n0" not in cluster.server.all("nodes")
    assert not mover.cordons.is_left
