"""What runs and how old the data is, from what was read of the log and of processes."""

import math
from collections.abc import Mapping, Sequence
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
    RunningPart,
    Status,
    StorageSizes,
    StreamSize,
)
from joulie_bus.core.times import MS
from joulie_bus.runtime.presets import HEADROOM
from joulie_bus.streams.subjects import Stream
from joulie_projections.state.state import ClusterState

NS = 10**9
SAMPLES = "joulie_broker_missing_messages{"
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
    ledger_behind_s: float
    elsewhere: Elsewhere | None


class Processes(NamedTuple):
    """The processes of `joulie up` on one machine, and the gauges of those that answered."""

    up_s: float
    pids: Mapping[str, int]
    alive: frozenset[str]
    restarts: Mapping[str, int]
    gauges: Mapping[str, Gauges]
    endpoints: Mapping[str, str]


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
    age_ms = max(0, now - at) // MS if at else 0
    return Status(
        position=found.position,
        at_ms=(at or 0) // MS,
        age_ms=age_ms,
        behind_ms=age_ms,
        running=found.elsewhere is not None,
        elsewhere=found.elsewhere,
        epoch=found.epoch,
        committed_at=datetime.fromtimestamp(at // MS / 1000, UTC) if at else None,
        commit_age_s=max(0, now - at) / NS if at else None,
        preset=str(plan.settings.get("preset", HEADROOM)) if plan else None,
        decisions=found.decisions,
        entries=found.entries,
        signed_to=found.signed_to,
        quarantined=found.quarantined,
        readings=_readings(cluster_state, now, reading_s),
        ledger_behind_s=found.ledger_behind_s,
        refused_on_sample=[
            RefusedOnSample(pod=pod, s=max(0, now - since) / NS)
            for pod, since in sorted(refused, key=lambda each: each[1])
        ],
    )


def _readings(cluster_state: ClusterState, now: int, reading_s: float) -> Readings:
    there = [node for node in cluster_state.nodes.values() if node.present]
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
        room=_sizes(here.gauges.get("projector", {})),
        endpoints=dict(here.endpoints),
    )


def _part(name: str, pid: int, here: Processes) -> RunningPart:
    alive, restarts = name in here.alive, here.restarts.get(name, 0)
    gauges = here.gauges.get(name)
    blank = RunningPart(name=name, pid=pid, alive=alive, restarts=restarts, position=None)
    return blank if gauges is None else with_gauges(blank, gauges)


def with_gauges(part: RunningPart, gauges: Gauges) -> RunningPart:
    """Position and ages of a part from its metrics; the projector has a lag instead."""
    position = int(gauges.get("joulie_position", 0))
    if part.name == "projector":
        return replace(
            part,
            position=position,
            lag_events=int(gauges.get("joulie_lag_events", 0)),
            lag_s=gauges.get("joulie_lag_seconds", 0.0),
            broker_silent_s=gauges.get("joulie_broker_silent_seconds", 0.0),
            incomplete=_incomplete(gauges),
        )
    return replace(
        part,
        position=position,
        view_age_s=gauges.get("joulie_view_age_seconds"),
        view_behind_s=gauges.get("joulie_view_behind_seconds"),
    )


def _incomplete(gauges: Gauges) -> list[MissingMessages]:
    found = []
    for key in gauges:
        if key.startswith(SAMPLES):
            server, stream = key.removeprefix(SAMPLES).removesuffix("}").rsplit(" ", 1)
            missing = int(gauges[key])
            found.append(MissingMessages(server=server, stream=stream, missing=missing))
    return found


def _sizes(gauges: Gauges) -> StorageSizes:
    """Empty while no projector runs."""
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
        free_bytes=_whole(gauges.get("joulie_data_free_bytes")),
    )


def _whole(value: float | None) -> int | None:
    return int(value) if value else None
