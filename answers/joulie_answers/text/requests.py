"""Requests beside use, as a table, and what recommended requests would free."""

from collections.abc import Iterator

from joulie_answers.schema.responses import (
    RequestedResource,
    WorkloadRequest,
    WorkloadRequestList,
)
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_projections.energy.report import BEHIND_S

SHOWN_LINES = 30
NO_PODS = "No pod runs, or none in this namespace."
_USED = "p50 / p95 / peak"
_HEAD = (
    *("workload", "pods", "cores", _USED, "advised", "free"),
    *("GiB", f"{_USED} ", "advised ", "free "),
    *("nodes", "W", "above", "waits"),
)


def requests_text(found: WorkloadRequestList) -> str:
    if not found.total:
        return NO_PODS
    shown = found.items[:SHOWN_LINES]
    lines: list[str | TextTable] = [
        TextTable(_HEAD, [_cells(each) for each in shown], set(_HEAD[1:])),
        *_more(found),
        _sum(found),
        *_unknown(found),
    ]
    return TextWithTables.of(lines)


def _cells(each: WorkloadRequest) -> tuple[str, ...]:
    above = [part.above for part in (each.cores, each.gib) if part.above is not None]
    return (
        f"{each.namespace}/{each.name}",
        str(each.pods),
        *_resource(each.cores, 2),
        *_resource(each.gib, 1),
        _figure(each.free_nodes, 2),
        _figure(each.free_w, 0),
        f"{max(above):.1%}" if above else "-",
        _waits(each),
    )


def _resource(part: RequestedResource, digits: int) -> tuple[str, ...]:
    used = " / ".join(_figure(value, digits) for value in (part.p50, part.p95, part.peak))
    advised = _figure(part.recommended, digits)
    return (f"{part.request:.{digits}f}", used, advised, _figure(part.free, digits))


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _waits(each: WorkloadRequest) -> str:
    """The part of the time in which some processes waited for processors, memory or I/O."""
    known = [wait for wait in (each.cpu_wait, each.memory_wait, each.io_wait) if wait is not None]
    return f"{max(known):.1%}" if known else "-"


def _more(found: WorkloadRequestList) -> Iterator[str]:
    if found.total > SHOWN_LINES:
        yield f"and {found.total - SHOWN_LINES} more; -o json lists all"


def _sum(found: WorkloadRequestList) -> str:
    freed = f"Free with these requests: {found.free_cores:.1f} cores, {found.free_gib:.1f} GiB"
    if found.free_nodes is None:
        return f"{freed}. How many nodes that is, is unknown: no capacity of a node is known."
    nodes = f"{freed}, {found.free_nodes:.1f} of {found.nodes} nodes without cards"
    if found.free_w is None:
        return f"{nodes}; their idle power is unknown."
    known = f"mean idle power of {found.idle_known_nodes} nodes"
    return f"{nodes}, {found.free_w:.0f} W while they sleep ({known}). Nothing was changed."


def _unknown(found: WorkloadRequestList) -> Iterator[str]:
    reasons: dict[str, int] = {}
    for each in found.items:
        if each.why:
            reasons[each.why] = reasons.get(each.why, 0) + 1
    for why, workloads in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:3]:
        yield f"No recommendation for {workloads} workload(s): {why}."
    if (behind_s := found.ledger_behind_ms / 1000) > BEHIND_S:
        yield f"STALE  The ledger lacks facts of the last {behind_s:.0f} s. See `joulie status`."
