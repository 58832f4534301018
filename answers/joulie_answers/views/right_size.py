"""Requests beside use, of each workload: what would be free with recommended requests."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from joulie_answers.schema import requests, responses
from joulie_operator.planning.power.limitable import idle_mw_of
from joulie_projections.energy.right_size import NO_USE, Recommended, lowered, recommended
from joulie_projections.energy.use import Histogram, WorkloadUse
from joulie_projections.pods.workload_name import workload_of
from joulie_projections.state.state import ClusterState, NodeState, PodState

MIB = 1 << 20
Key = tuple[str, str]  # namespace and name of a workload


class Sizes(NamedTuple):
    """Millicores and MiB."""

    cpu_milli: int
    memory_mib: int


NOTHING = Sizes(0, 0)
AS_NOW = Recommended()


class Pool(NamedTuple):
    """The mean of the nodes without cards. A node with cards is not freed by cores and memory."""

    nodes: int
    cpu_milli: float
    memory_mib: float
    idle_w: float | None  # of the nodes whose idle power is read or rated; None: of no node
    idle_known: int

    def nodes_for(self, sizes: Sizes) -> float:
        """By the resource that fills nodes first."""
        return max(sizes.cpu_milli / self.cpu_milli, sizes.memory_mib / self.memory_mib)


class Row(NamedTuple):
    """A workload, and what its pods on nodes without cards request now and as recommended."""

    item: responses.WorkloadRequest
    before: Sizes
    after: Sizes
    share: float  # of what is free, in nodes of any kind; only for the order


def pool_of(state: ClusterState) -> Pool | None:
    """None while no capacity is known."""
    nodes = [
        node
        for node in state.nodes.values()
        if node.present and not node.gpus and node.cpu_milli and node.memory_bytes
    ]
    if not nodes:
        return None
    idle = [watts for node in nodes if (watts := idle_w(node)) is not None]
    return Pool(
        len(nodes),
        sum(node.cpu_milli for node in nodes) / len(nodes),
        sum(node.memory_bytes for node in nodes) / len(nodes) / MIB,
        sum(idle) / len(idle) if idle else None,
        len(idle),
    )


def idle_w(node: NodeState) -> float | None:
    """By its readings, else by its rated power. A guess by its size is unknown here."""
    is_rated = node.hardware is not None and node.hardware.cpu_max_mw_per_socket > 0
    return idle_mw_of(node) / 1000 if node.idle_mw or is_rated else None


def running_by_workload(
    pods: Iterable[PodState], namespace: str
) -> Mapping[Key, Sequence[PodState]]:
    found: dict[Key, list[PodState]] = defaultdict(list)
    for each in pods:
        if each.node and not each.finished and namespace in ("", each.pod.namespace):
            found[each.pod.namespace, workload_of(each.pod.name)].append(each)
    return found


def rows_of(
    state: ClusterState,
    uses: Iterable[WorkloadUse],
    query: requests.WorkloadRequests,
    pool: Pool | None,
) -> list[Row]:
    """Those first of which most could be freed."""
    known = {(each.namespace, each.name): each for each in uses}
    running = running_by_workload(state.pods.values(), query.namespace)
    rows = [
        _row(state, pods, known.get(key) or WorkloadUse(*key), query, pool)
        for key, pods in running.items()
    ]
    return sorted(rows, key=lambda row: (-row.share, row.item.namespace, row.item.name))


def _row(
    state: ClusterState,
    pods: Sequence[PodState],
    use: WorkloadUse,
    query: requests.WorkloadRequests,
    pool: Pool | None,
) -> Row:
    advice = recommended(use, query.least_hours) if use.seconds else NO_USE
    before, after = _sizes(pods), _sizes(pods, advice)
    plain = [each for each in pods if not _has_cards(state.nodes.get(each.node))]
    plain_before, plain_after = _sizes(plain), _sizes(plain, advice)
    nodes = _fewer(pool, plain, advice) if plain and not advice.why_not else None
    item = responses.WorkloadRequest(
        namespace=use.namespace,
        name=use.name,
        pods=len(pods),
        pod_hours=use.seconds / 3600,
        history_hours=(use.last_ms - use.first_ms) / 3_600_000,
        cores=_cores(pods, use, advice, before.cpu_milli - after.cpu_milli),
        gib=_gib(pods, use, advice, before.memory_mib - after.memory_mib),
        cpu_wait=use.cpu_waits.share,
        memory_wait=use.memory_waits.share,
        io_wait=use.io_waits.share,
        free_nodes=nodes,
        free_w=_watts(pool, nodes),
        why=advice.why_not,
    )
    return Row(item, plain_before, plain_after, _fewer(pool, pods, advice) or 0.0)


def _has_cards(node: NodeState | None) -> bool:
    return node is not None and node.gpus > 0


def _sizes(pods: Iterable[PodState], advice: Recommended = AS_NOW) -> Sizes:
    sizes = [_size(pod, advice) for pod in pods]
    return Sizes(sum(s.cpu_milli for s in sizes), sum(s.memory_mib for s in sizes))


def _size(state: PodState, advice: Recommended = AS_NOW) -> Sizes:
    pod = state.pod
    memory_mib = -(-pod.memory_bytes // MIB)
    return Sizes(lowered(pod.cpu_milli, advice.cpu_milli), lowered(memory_mib, advice.memory_mib))


def _fewer(pool: Pool | None, pods: Iterable[PodState], advice: Recommended) -> float | None:
    """In nodes: each pod by the part of a node that it occupies."""
    if pool is None:
        return None
    return sum(pool.nodes_for(_size(pod)) - pool.nodes_for(_size(pod, advice)) for pod in pods)


def _watts(pool: Pool | None, nodes: float | None) -> float | None:
    return None if pool is None or pool.idle_w is None or nodes is None else nodes * pool.idle_w


def _cores(
    pods: Sequence[PodState], use: WorkloadUse, advice: Recommended, free_milli: int
) -> responses.RequestedResource:
    request = max(each.pod.cpu_milli for each in pods)
    to = _advised(request, advice.cpu_milli)
    return _resource(
        (request, use.cpu, use.cpu_peak_milli, to, free_milli),
        1000,
        use.cpu_milli_s / use.seconds / 1000 if use.seconds else None,
    )


def _gib(
    pods: Sequence[PodState], use: WorkloadUse, advice: Recommended, free_mib: int
) -> responses.RequestedResource:
    request = max(_size(each).memory_mib for each in pods)
    to = _advised(request, advice.memory_mib)
    return _resource((request, use.memory, use.memory_peak_mib, to, free_mib), 1024, None)


def _advised(request: int, to: int | None) -> int | None:
    """Pods that request none have no recommendation: it would be a larger one."""
    return None if to is None or not request else lowered(request, to)


def _resource(
    figures: tuple[int, Histogram, int, int | None, int], unit: int, mean: float | None
) -> responses.RequestedResource:
    request, used, peak, to, free = figures
    is_known = bool(used.seconds)
    return responses.RequestedResource(
        request=request / unit,
        mean=mean,
        p50=min(peak, used.percentile(50)) / unit if is_known else None,
        p95=min(peak, used.percentile(95)) / unit if is_known else None,
        peak=peak / unit if is_known else None,
        recommended=None if to is None else to / unit,
        free=None if to is None else free / unit,
        above=None if to is None else used.share_above(to),
    )


class Totals(NamedTuple):
    cores: float
    gib: float
    nodes: float | None
    watts: float | None


def totals_of(rows: Sequence[Row], state: ClusterState, pool: Pool | None) -> Totals:
    """Nodes are freed by the resource that is scarce for all pods together, so they are fewer than
    the sum over the workloads."""
    nodes = None
    if pool is not None:
        whole = _sizes(_on_plain_nodes(state))
        freed = [sum(each) for each in zip(NOTHING, *(_freed(row) for row in rows), strict=True)]
        after = Sizes(whole.cpu_milli - freed[0], whole.memory_mib - freed[1])
        nodes = pool.nodes_for(whole) - pool.nodes_for(after)
    return Totals(
        sum(row.item.cores.free or 0.0 for row in rows),
        sum(row.item.gib.free or 0.0 for row in rows),
        nodes,
        _watts(pool, nodes),
    )


def _freed(row: Row) -> Sizes:
    before, after = row.before, row.after
    return Sizes(before.cpu_milli - after.cpu_milli, before.memory_mib - after.memory_mib)


def _on_plain_nodes(state: ClusterState) -> Iterator[PodState]:
    for each in state.pods.values():
        if each.node and not each.finished and not _has_cards(state.nodes.get(each.node)):
            yield each
