"""Requests beside use: what would be free, in cores, memory, nodes and watts."""

from msgspec.structs import replace

from bus_kit import hardware, node_seen
from bus_kit.clock import NOON
from bus_kit.pods import ask
from joulie_answers.readers.requests import requests_now
from joulie_answers.schema import requests, responses
from joulie_answers.text.requests import NO_PODS, requests_text
from joulie_bus.events import Fact, PodAsk, PodBound, PodUse
from joulie_projections.energy.use import WorkloadUse
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.store.energy_table import EnergyTable, UseReading

GIB = 1 << 30
NOON_MS = NOON // 1_000_000
STAMP: responses.Stamp = {"position": 9, "at_ms": NOON_MS, "age_ms": 0, "behind_ms": 0}
QUERY = requests.WorkloadRequests()


def state_of(*facts: Fact) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    for fact in facts:
        evolve(draft, fact, NOON)
    draft.commit()
    return state


def pod(name: str, cores: float, gib: float, namespace: str = "team") -> PodAsk:
    asked = ask(name, cores=cores)
    return replace(asked, name=name, namespace=namespace, memory_bytes=round(gib * GIB))


def node(name: str, gpus: int = 0) -> list[Fact]:
    return [
        replace(node_seen(name, cores=10, gpus=gpus), memory_bytes=100 * GIB),
        hardware(name, cores=10, watts=200, gpus=gpus),
    ]


def steady(name: str, cpu_milli: int, mib: int, namespace: str = "team") -> WorkloadUse:
    """Two days of a pod."""
    found = WorkloadUse(namespace, name)
    for hour in range(49):
        at_ms = NOON_MS + hour * 3_600_000
        found.add(PodUse(b"x", 600, cpu_milli, mib, mib, cpu_wait=20), at_ms)
    return found


class Table:
    """A ledger that holds the use of some workloads."""

    def __init__(self, *workloads: WorkloadUse) -> None:
        self._workloads = workloads

    def uses(self, _: int) -> UseReading:
        return UseReading(self._workloads, position=7, behind_s=0.0)


def answered(
    state: ClusterState, *uses: WorkloadUse, query: requests.WorkloadRequests = QUERY
) -> responses.WorkloadRequestList:
    table: EnergyTable = Table(*uses)  # type: ignore[assignment]
    return requests_now(table, STAMP, state, NOON_MS, query)


WEB = [PodBound(pod=pod(f"web-{number}", 4, 10), node="n1") for number in range(2)]
IDLE_W = 100.0  # half of the rated power


def test_free_cores_nodes_and_watts_follow_from_use() -> None:
    """Two pods of 4 cores and 10 GiB use one core and 5 GiB: 1.5 cores and 6 GiB are enough."""
    found = answered(state_of(*node("n1"), *WEB), steady("web", 1000, 5120))
    [web] = found.items

    assert (web.pods, web.cores.request, web.cores.recommended, web.cores.free) == (2, 4, 1.5, 5)
    assert (web.gib.recommended, web.gib.free) == (6, 8)
    assert (web.free_nodes, web.free_w) == (0.5, 0.5 * IDLE_W)
    assert (found.free_nodes, found.free_w) == (0.5, 0.5 * IDLE_W)
    assert web.cores.above == 0
    assert (web.cpu_wait, web.io_wait) == (0.02, None)


def test_no_request_is_raised_and_none_is_made_up() -> None:
    bare = PodBound(pod=pod("bare", 0, 0), node="n1")
    tight = PodBound(pod=pod("tight", 0.5, 1), node="n1")
    uses = [steady("bare", 1000, 5120), steady("tight", 1000, 5120)]
    found = {each.name: each for each in answered(state_of(*node("n1"), bare, tight), *uses).items}

    assert (found["bare"].cores.recommended, found["bare"].cores.free) == (None, None)
    assert (found["tight"].cores.recommended, found["tight"].gib.recommended) == (0.5, 1)
    assert found["tight"].cores.above == 1.0  # it used more than it asks for all the time


def test_a_workload_without_use_says_so_and_comes_last() -> None:
    other = PodBound(pod=pod("a-first", 8, 10), node="n1")
    found = answered(state_of(*node("n1"), *WEB, other), steady("web", 1000, 5120))
    web, unknown = found.items

    assert (web.name, unknown.name) == ("web", "a-first")
    assert unknown.why == "no agent has reported what its pods use"
    assert (unknown.cores.p50, unknown.cores.recommended, unknown.gib.peak) == (None, None, None)
    free = unknown.cores.free, unknown.gib.free, unknown.free_nodes, unknown.free_w
    assert free == (None, None, None, None)  # what is unknown is no 0
    text = requests_text(found)
    assert "No recommendation for 1 workload(s)" in text
    [line] = [line for line in text.splitlines() if line.startswith("team/a-first")]
    assert "0.00" not in line.replace("8.00", "").replace("10.0", "")


def test_pods_beside_cards_free_no_node() -> None:
    found = answered(
        state_of(*node("n1"), *node("g1", gpus=8), replace(WEB[0], node="g1")),
        steady("web", 1000, 5120),
    )
    [web] = found.items

    assert web.cores.free == 2.5
    assert (web.free_nodes, web.free_w, found.free_nodes, found.nodes) == (None, None, 0, 1)


def test_idle_power_that_nothing_tells_stays_unknown() -> None:
    seen, _ = node("n1")
    found = answered(state_of(seen, *WEB), steady("web", 1000, 5120))

    assert (found.free_nodes, found.free_w, found.idle_w) == (0.5, None, None)
    assert "their idle power is unknown" in requests_text(found)


def test_nodes_are_counted_by_the_resource_that_is_scarce_for_all() -> None:
    """One workload frees cores and another one memory, of which enough is free anyway."""
    packed = PodBound(pod=pod("cache-0", 0.1, 50), node="n1")
    uses = [steady("web", 1000, 20_480), steady("cache", 100, 1024)]
    found = answered(state_of(*node("n1"), *WEB, packed), *uses)

    assert sum(each.free_nodes or 0 for each in found.items) > (found.free_nodes or 0) > 0


def test_a_namespace_is_a_part_of_it_and_pages_follow_each_other() -> None:
    other = PodBound(pod=pod("other", 1, 1, namespace="b"), node="n1")
    state = state_of(*node("n1"), *WEB, other)
    part = answered(state, query=requests.WorkloadRequests(namespace="b"))
    first = answered(state, query=requests.WorkloadRequests(limit=1))

    assert [each.name for each in part.items] == ["other"]
    assert (first.total, first.next, len(first.items)) == (2, 1, 1)
    assert requests_text(answered(state_of())) == NO_PODS


def test_the_table_has_request_use_and_advice_in_one_line() -> None:
    text = requests_text(answered(state_of(*node("n1"), *WEB), steady("web", 1000, 5120)))
    line = next(line for line in text.splitlines() if line.startswith("team/web"))

    assert line.split()[:3] == ["team/web", "2", "4.00"]
    assert "1.50" in line
    assert "5.0 cores, 8.0 GiB, 0.5 of 1 nodes without cards, 50 W while they sleep" in text
    assert "Nothing was changed." in text
