"""What runs and how old the data is, from what was read of the log and of processes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from joulie_answers.schema.responses import (
    Elsewhere,
    Leader,
    MissingMessages,
    Readings,
    RefusedOnSample,
    Replica,
    ReplicaSpool,
    RunningPart,
    Status,
    StorageSizes,
    StreamSize,
)
from joulie_bus.core.times import MS
from joulie_bus.runtime.presets import HEADROOM
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.state.state import ClusterState

NS = 10**9
Gauges = Mapping[str, float]


class LogFigures(NamedTuple):
    """What the database counts."""

    position: int
    epoch: int
    committed_at: int | None
    decisions: int
    entries: int
    signed_to: int
    quarantined: int
    foreign_rows: int
    unsigned_since: int | None
    ledger_behind_s: float | None  # None: it cannot be read
    elsewhere: Elsewhere | None
    leaderless_s: float | None


class Disk(NamedTuple):
    """The file system of the data directory."""

    free_bytes: int
    full: str  # why nothing can be written; empty if it can


class Processes(NamedTuple):
    """The processes of `joulie up` on one machine, and the gauges of those that answered."""

    up_s: float
    pids: Mapping[str, int]
    up_s_of: Mapping[str, float]
    alive: frozenset[str]
    restarts: Mapping[str, int]
    gauges: Mapping[str, Gauges]
    endpoints: Mapping[str, str]
    disk: Disk


def elsewhere_of(
    leader: tuple[str, int, float, float] | None, replicas: Sequence[tuple[str, int, float]]
) -> Elsewhere | None:
    if leader is None:
        return None
    owner, epoch, lease_s, behind_s = leader
    known_s = None if math.isinf(behind_s) else behind_s
    projector = Leader(owner=owner, epoch=epoch, lease_s=lease_s, behind_s=known_s)
    extenders = [Replica(name=name, answers=count, age_s=age) for name, count, age in replicas]
    return Elsewhere(projector=projector, extenders=extenders)


def status_from(
    found: LogFigures,
    cluster_state: ClusterState,
    refused: Sequence[tuple[str, int]],
    now: int,
    reading_s: float,
) -> Status:
    """A reading that is older than `reading_s` is not fresh. `refused`: pods that were refused on a
    sample, and since when."""
    at, plan = found.committed_at, cluster_state.plan
    age_ms = max(0, now - at) // MS if at else None
    return Status(
        position=found.position,
        at_ms=(at or 0) // MS,
        age_ms=age_ms,
        behind_ms=age_ms,
        running=found.elsewhere is not None,
        elsewhere=found.elsewhere,
        leaderless_s=found.leaderless_s,
        epoch=found.epoch,
        committed_at=datetime.fromtimestamp(at // MS / 1000, UTC) if at else None,
        commit_age_s=max(0, now - at) / NS if at else None,
        preset=str(plan.settings.get("preset", HEADROOM)) if plan else None,
        decisions=found.decisions,
        entries=found.entries,
        signed_to=found.signed_to,
        quarantined=found.quarantined,
        foreign_rows=found.foreign_rows,
        unsigned_s=max(0, now - found.unsigned_since) / NS if found.unsigned_since else None,
        readings=_readings(cluster_state, now, reading_s),
        ledger_behind_s=found.ledger_behind_s,
        refused_on_sample=[
            RefusedOnSample(pod=pod, s=max(0, now - since) / NS)
            for pod, since in sorted(refused, key=lambda each: each[1])
        ],
    )


def _readings(cluster_state: ClusterState, now: int, reading_s: float) -> Readings:
    """Of the nodes of the page: also those whose agent reports before their object is seen."""
    there = [node for node in cluster_state.nodes.values() if node.present or node.samples]
    ages = [max(0, now - node.samples[-1].at) / NS for node in there if node.samples]
    return Readings(
        nodes=len(there),
        asleep=sum(node.power_state == "asleep" for node in there),
        fresh=sum(age <= reading_s for age in ages),
        oldest_s=max(ages, default=None),
    )


def with_processes(found: Status, here: Processes) -> Status:
    return replace(
        found,
        running=True,
        up_s=here.up_s,
        parts=[_part(name, pid, here) for name, pid in here.pids.items()],
        spools=[_spool(here.gauges.get(Role.EXTENDER, {}))] if Role.EXTENDER in here.pids else [],
        room=_sizes(here.gauges.get("projector", {}), here.disk),
        endpoints=dict(here.endpoints),
    )


def _part(name: str, pid: int, here: Processes) -> RunningPart:
    alive, restarts = name in here.alive, here.restarts.get(name, 0)
    gauges = here.gauges.get(name)
    blank = RunningPart(
        name=name,
        pid=pid,
        alive=alive,
        restarts=restarts,
        position=None,
        up_s=here.up_s_of.get(name),
        answers=gauges is not None,
    )
    return blank if gauges is None else with_gauges(blank, gauges)


def with_gauges(part: RunningPart, gauges: Gauges) -> RunningPart:
    """Position and ages of a part from its metrics; the projector has a lag instead."""
    position = _whole(gauges.get("joulie_position"))
    if part.name == Role.PROJECTOR:
        return replace(
            part,
            position=position,
            lag_events=_whole(gauges.get("joulie_lag_events")),
            lag_s=gauges.get("joulie_lag_seconds"),
            broker_silent_s=gauges.get("joulie_broker_silent_seconds"),
            incomplete=_incomplete(gauges),
            lost_servers=_lost_servers(gauges),
            not_signed=why_not_signed(gauges),
        )
    paused = gauges.get("joulie_view_paused")
    return replace(
        part,
        position=position,
        paused=None if paused is None else bool(paused),
        view_age_s=gauges.get("joulie_view_age_seconds"),
        view_behind_s=gauges.get("joulie_view_behind_seconds"),
        missing=int(gauges.get("joulie_answers_missing", 0)),
    )


def _spool(gauges: Gauges) -> ReplicaSpool:
    waiting = _whole(gauges.get("joulie_decision_spool_events"))
    return replica_spool(Role.EXTENDER, waiting, gauges.get("joulie_decision_spool_seconds"))


def replica_spool(
    name: str, waiting: int | None, oldest_s: float | None, heard_s: float | None = None
) -> ReplicaSpool:
    return ReplicaSpool(name=name, waiting=waiting, oldest_s=oldest_s, heard_s=heard_s)


def why_not_signed(gauges: Gauges) -> str:
    """Why the projector signs no heads; empty if it does."""
    if gauges.get("joulie_log_forked"):
        return "a signed head has another hash than the log"
    if gauges.get("joulie_log_behind_head"):
        return "the log ends before its newest signed head"
    return ""


def _incomplete(gauges: Gauges) -> list[MissingMessages]:
    found = []
    for labels, missing in _labelled(gauges, "joulie_broker_missing_messages"):
        server, stream = labels.rsplit(" ", 1)
        found.append(MissingMessages(server=server, stream=stream, missing=int(missing)))
    return found


def _lost_servers(gauges: Gauges) -> list[str]:
    return [server for server, is_lost in _labelled(gauges, "joulie_broker_server_lost") if is_lost]


def _labelled(gauges: Gauges, name: str) -> Iterator[tuple[str, float]]:
    """The labels of each sample, and its value."""
    start = f"{name}{{"
    for key, value in gauges.items():
        if key.startswith(start):
            yield key.removeprefix(start).removesuffix("}"), value


def _sizes(gauges: Gauges, disk: Disk) -> StorageSizes:
    """Those of streams and database are empty while no projector runs."""
    held = {stream: gauges.get(f"joulie_stream_bytes{{{stream}}}") for stream in Stream}
    return StorageSizes(
        streams={
            str(stream): StreamSize(
                bytes=int(size),
                max_bytes=_whole(gauges.get(f"joulie_stream_max_bytes{{{stream}}}")),
                days_left=gauges.get(f"joulie_stream_days_left{{{stream}}}"),
                kept_s=gauges.get(f"joulie_stream_kept_seconds{{{stream}}}", 0.0),
            )
            for stream, size in held.items()
            if size is not None
        },
        database_bytes=_whole(gauges.get("joulie_database_bytes")),
        free_bytes=disk.free_bytes,
        full=disk.full,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
