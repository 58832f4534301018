"""Metrics of power, energy, cost and carbon, from the ledger after each commit."""

from collections.abc import Sequence

from joulie_bus.runtime import metrics
from joulie_projections.energy.idle_holders import IdleHolder
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.ledger import ASLEEP, WAKING, Ledger
from joulie_projections.energy.meters import GAP_MS
from joulie_projections.energy.report import NANO, report_of

MOST_NAMESPACES = 50  # a label of each: more would make the metrics grow with the cluster's users
OTHERS = "(others)"
UJ_PER_JOULE = UG_PER_G = 1_000_000
STATES = {0: "awake", ASLEEP: "asleep", WAKING: "waking"}
_JOULES = {kind: metrics.ENERGY.labels(kind=kind) for kind in ("pods", "idle", "unknown")}
_named: set[str] = set()


def count(closed: Sequence[Interval]) -> None:
    """Adds intervals that have ended: nodes have minutes, namespaces hours."""
    for interval in closed:
        if interval.grain == "minutes":
            _count_nodes(interval)
        elif interval.grain == "hour":
            _count_namespaces(interval)


def _count_nodes(interval: Interval) -> None:
    for node in interval.nodes:
        _JOULES["pods"].inc(node.pods_uj / UJ_PER_JOULE)
        _JOULES["idle"].inc(node.idle_uj / UJ_PER_JOULE)
        _JOULES["unknown"].inc(node.unknown_uj / UJ_PER_JOULE)


def _count_namespaces(interval: Interval) -> None:
    found = report_of([interval], "namespace")
    for name, share in found.by.items():
        label = label_of(name)
        metrics.NAMESPACE_ENERGY.labels(namespace=label).inc(max(0, share.energy_uj) / UJ_PER_JOULE)
        metrics.NAMESPACE_CARBON.labels(namespace=label).inc(max(0, share.worth.co2_ug) / UG_PER_G)
        if share.worth.priced_uj:
            cost = metrics.NAMESPACE_COST.labels(namespace=label, currency=found.currency)
            cost.inc(share.worth.cost_n / NANO)


def label_of(namespace: str) -> str:
    """The first namespaces keep their names until the process ends."""
    if namespace not in _named and len(_named) >= MOST_NAMESPACES:
        return OTHERS
    _named.add(namespace)
    return namespace


def show(ledger: Ledger, silent_ms: float) -> None:
    """The newest state, if the ledger received its newest fact so long ago."""
    present = [node for node in ledger.nodes.values() if node.present]
    columns = ledger.meters.columns
    read = [
        node.row
        for node in present
        if columns["last_ms"][node.row] >= max(0, ledger.newest_ms + silent_ms - GAP_MS)
    ]
    if read or not present:
        metrics.POWER_WATTS.set(int(columns["last_mw"][read].sum()) / 1000)
    else:
        metrics.POWER_WATTS.forget()
    metrics.NODES_UNREAD.set(len(present) - len(read))
    states = [int(columns["asleep"][node.row]) for node in present]
    for state, name in STATES.items():
        metrics.NODES.labels(state=name).set(states.count(state))
    requested = sum(pod.gpu_milli for node in present for pod in node.pods.values())
    metrics.GPUS.labels(of="nodes").set(sum(node.capacity.gpus for node in present))
    metrics.GPUS.labels(of="requested").set(requested / 1000)


def show_holders(found: Sequence[IdleHolder]) -> None:
    metrics.IDLE_HOLDERS.set(len(found))
    metrics.IDLE_HOLDERS_WATTS.set(sum(each.power_mw for each in found) / 1000)
