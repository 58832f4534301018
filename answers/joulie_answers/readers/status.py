"""What runs and how old the data is: read from the database, and completed with its warnings."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_answers.schema.responses import ReplicaSpool, Status
from joulie_answers.text.health import health_of_status
from joulie_answers.text.status import warnings_of
from joulie_answers.views.status import (
    LogFigures,
    Processes,
    elsewhere_of,
    status_from,
    with_processes,
)
from joulie_operator.planning.refused_on_sample import pods_refused_on_sample, refusable_pods
from joulie_projections.history.history import History
from joulie_projections.history.installation import leader_in, leaderless_s_in, replicas_in
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state import rows
from joulie_projections.state.state import ClusterState

MOST_READ = 2000  # pending pods whose answers are read


class FromDatabase(NamedTuple):
    figures: LogFigures
    refusals: Sequence[Refusal]


def from_database(
    refusable: Sequence[str], ledger_s: float | None
) -> Callable[[History], FromDatabase]:
    """The query of a status. `refusable` are the uids of pods that the extender can refuse."""

    def query(history: History) -> FromDatabase:
        refusals = history.refusals(refusable[:MOST_READ]) if refusable else []
        return FromDatabase(_figures(history, ledger_s), refusals)

    return query


def _figures(history: History, ledger_s: float | None) -> LogFigures:
    checkpoint, counts = history.checkpoint(), history.counts()
    leader = leader_in(history.connection)
    return LogFigures(
        checkpoint.position if checkpoint else 0,
        checkpoint.epoch if checkpoint else 0,
        counts.committed_at,
        counts.answers,
        counts.entries,
        counts.signed_to,
        counts.quarantined,
        history.foreign_rows(0)[0],
        history.unsigned_since(),
        ledger_s,
        elsewhere_of(leader, replicas_in(history.connection) if leader else ()),
        None if leader else leaderless_s_in(history.connection),
    )


def completed(
    found: FromDatabase,
    cluster_state: ClusterState,
    now: int,
    reading_s: float,
    spools: Sequence[ReplicaSpool] = (),
) -> Status:
    waiting = pods_refused_on_sample(cluster_state.nodes, cluster_state.pods, found.refusals)
    named = [(f"{pod.namespace}/{pod.name}", since) for pod, since in waiting]
    status = status_from(found.figures, cluster_state, named, now, reading_s)
    return judged(replace(status, spools=[*spools]))


def judged(found: Status) -> Status:
    """With what is stale, and with the worst of it as the health of everything."""
    stale = warnings_of(found)
    return replace(found, stale=stale, health=health_of_status(found, stale))


def status_here(
    history: History,
    ledger_s: float | None,
    now: int,
    reading_s: float,
    processes: Processes | None,
    data: str,
) -> Status:
    """Of a machine with `data` and the processes of `joulie up`, if they run. Reads the pods only
    if the operator of this machine has seen some that wait because of a sample."""
    gauges = processes.gauges.get("operator", {}) if processes else {}
    if gauges.get("joulie_pods_refused_on_sample", 0):
        cluster_state = history.cluster_state()
    else:
        cluster_state = ClusterState()
        rows.apply_rows(cluster_state, history.states("cluster", "node"))
    found = from_database(refusable_pods(cluster_state.pods), ledger_s)(history)
    status = replace(completed(found, cluster_state, now, reading_s), data=data)
    if processes is not None:
        status = with_processes(replace(status, elsewhere=None), processes)
    return judged(status)
