"""What runs and how old the data is, as lines; and what of it is stale, as sentences."""

from collections.abc import Iterator, Sequence

from joulie_answers.schema.responses import (
    Elsewhere,
    Leader,
    RefusedOnSample,
    Replica,
    RunningPart,
    Status,
    StorageSizes,
    StreamSize,
)
from joulie_bus.core.times import duration
from joulie_bus.streams.incomplete import described
from joulie_bus.streams.records import IncompleteCopy
from joulie_bus.streams.subjects import Stream

MOST_NAMED = 10  # refused pods in the text; all are in the JSON
SILENT_S = 5.0  # a view gets four heartbeats a second; a longer silence is a fault
BEHIND_S = 2.0  # a projector that keeps up is behind by less
BROKER_SILENT_S = 3.0  # the projector asks the broker four times a second
LEDGER_BEHIND_S = 10.0  # of joulie_projections.energy.report; a test compares them
NEVER_S = 1e9  # of joulie_bus.runtime.metrics: no view yet; a test compares them


# --- what is stale ------------------------------------------------------------------------------


def warnings_of(found: Status) -> list[str]:
    return [
        *part_warnings(found.parts, f"{found.data}/logs"),
        *(_elsewhere_warnings(found.elsewhere.projector) if found.elsewhere else ()),
        *_age_warnings(found),
        *(_ledger_warnings(found.ledger_behind_s) if found.running else ()),
    ]


def part_warnings(parts: Sequence[RunningPart], logs: str) -> list[str]:
    """Parts that are down, do not answer, or are behind; the projector before its readers."""
    warnings, projector_s = list[str](), 0.0
    for part in sorted(parts, key=lambda part: not _is_projector(part)):
        if not part.alive:
            warnings.append(f"{part.name} is down; see {logs}/{part.name}.log")
        elif part.position is None and part.name != "nats-server":
            warnings.append(f"{part.name} does not serve its metrics; it may still be starting")
        elif _is_projector(part):
            projector_s = part.lag_s or 0.0
            warnings += projector_warnings(part)
        else:
            warnings += _view_warnings(part, projector_s)
    return warnings


def _is_projector(part: RunningPart) -> bool:
    return part.lag_s is not None


def projector_warnings(part: RunningPart) -> list[str]:
    silent_s = part.broker_silent_s or 0.0
    copies = [
        IncompleteCopy(each.server, Stream(each.stream), each.missing) for each in part.incomplete
    ]
    holes = [f"broker: {text}" for text in described(copies).values()]
    lag = [*_lag_warnings(part.name, part.lag_s or 0.0, part.lag_events or 0), *holes]
    if silent_s <= BROKER_SILENT_S:
        return lag
    silence = f"the {part.name} has read no answer of a majority for {duration(silent_s)}"
    return [f"broker: {silence}: it is down, is not reached, or has no CPU", *lag]


def _lag_warnings(name: str, behind_s: float, waiting: int) -> list[str]:
    if behind_s >= NEVER_S:
        return [f"{name} has not folded the facts of before its start yet"]
    if behind_s > BEHIND_S:
        late = "it reads answers of the broker late"
        why = f"{waiting} facts are not folded yet" if waiting else late
        return [f"{name} is up to {duration(behind_s)} behind the broker: {why}"]
    return []


def _view_warnings(part: RunningPart, projector_s: float) -> list[str]:
    """A view that is behind because of the projector is not reported besides it."""
    name, age_s, behind_s = part.name, part.view_age_s or 0.0, part.view_behind_s or 0.0
    if age_s >= NEVER_S:
        return [f"{name} has received no heartbeat of the projector yet"]
    if age_s > SILENT_S:
        return [f"{name} received no heartbeat of the projector for {duration(age_s)}"]
    if behind_s >= NEVER_S > projector_s:
        return [f"{name} does not know how far it is behind the broker"]
    if behind_s > BEHIND_S and (projector_s <= BEHIND_S or behind_s > 2 * projector_s):
        how_far = f"up to {duration(behind_s)} behind the broker"
        return [f"{name} is {how_far}, and the projector {duration(projector_s)}"]
    return []


def _elsewhere_warnings(leader: Leader) -> list[str]:
    if leader.behind_s is None:
        return ["the projector does not know how far it is behind the broker"]
    if leader.behind_s > BEHIND_S:
        behind = f"{leader.behind_s:.1f} s behind the broker"
        return [f"the projector is {behind}, or does not reach it"]
    return []


def _ledger_warnings(behind_s: float) -> list[str]:
    """From the database: a ledger that is down or hangs has no metrics that say so."""
    if behind_s <= LEDGER_BEHIND_S:
        return []
    what = f"the ledger lacks facts of the last {duration(behind_s)}"
    return [f"{what}: figures of energy end before that"]


def _age_warnings(found: Status) -> list[str]:
    missing = found.readings.nodes - found.readings.fresh
    if not found.running and found.commit_age_s is not None:
        return [f"nothing runs: the data is {duration(found.commit_age_s)} old"]
    if missing:
        return [f"{missing} node(s) without a fresh reading are scored by the model"]
    return []


# --- all of it ----------------------------------------------------------------------------------


def status_text(found: Status) -> str:
    return "\n".join(
        [
            _running_line(found),
            *map(_part_line, found.parts),
            *(_elsewhere_lines(found.elsewhere) if found.elsewhere else ()),
            *_log_lines(found),
            *_sample_lines(found.refused_on_sample),
            *_size_lines(found.room),
            *(f"{name:<12} {url}" for name, url in found.endpoints.items()),
            *([f"data         {found.data}"] if found.data else ()),
            *(f"STALE        {what}" for what in found.stale),
        ]
    )


def _running_line(found: Status) -> str:
    if found.up_s is not None:
        return f"running for {duration(found.up_s)}"
    if not found.running:
        return "not running"
    return "running, not by joulie up" if found.data else "running"


def _log_lines(found: Status) -> Iterator[str]:
    age, readings = found.commit_age_s, found.readings
    committed = f", last commit {duration(age)} ago" if age is not None else ""
    yield f"position     {found.position}{committed}"
    if found.preset:
        yield f"preset       {found.preset}"
    signed = f"{found.entries} entries, signed up to {found.signed_to}"
    yield f"decisions    {found.decisions} ({signed})"
    oldest = readings.oldest_s
    old = f", the oldest {duration(oldest)} old" if oldest is not None else ""
    yield f"readings     {readings.fresh} of {readings.nodes} nodes fresh{old}"
    if readings.asleep:
        yield f"asleep       {readings.asleep} of {readings.nodes} nodes"
    yield f"quarantined  {found.quarantined}"


def _elsewhere_lines(found: Elsewhere) -> list[str]:
    leader = found.projector
    known = leader.behind_s is not None
    behind = f"{leader.behind_s:.1f} s" if known else "by an unknown time"
    projector = f"process {_process(leader.owner)}, epoch {leader.epoch}, {behind} behind"
    return [
        f"  projector   {projector}, lease for {leader.lease_s:.1f} s more",
        *map(_extender_line, found.extenders),
    ]


def _extender_line(found: Replica) -> str:
    return f"  {found.name:<12}last answer {found.age_s:.1f} s ago"


def _process(owner: str) -> str:
    """Its id and the beginning of the id of its boot."""
    match owner.split("/"):
        case [boot, _, pid, _, _]:
            return f"{pid} of boot {boot[:8]}"
        case _:
            return owner


def _sample_lines(found: Sequence[RefusedOnSample]) -> Iterator[str]:
    if found:
        named = [f"{each.pod} for {duration(each.s)}" for each in found[:MOST_NAMED]]
        more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
        what = "refused on a sample, while a fit node exists"
        yield f"sample       {len(found)} pod(s), {what}: {', '.join(named + more)}"


def _size_lines(found: StorageSizes) -> Iterator[str]:
    for name, stream in found.streams.items():
        yield _stream_line(name, stream)
    if found.database_bytes is not None:
        free = f", {_size(found.free_bytes)} free on the disk" if found.free_bytes else ""
        yield f"database     {_size(found.database_bytes)}{free}"


def _stream_line(name: str, stream: StreamSize) -> str:
    held, most = stream.bytes, stream.max_bytes
    share = f"{held / most:.0%} of {_size(most)}" if most else _size(held)
    kept = f", of {duration(stream.kept_s)}" if stream.kept_s else ""
    left = f", full in {stream.days_left:.0f} day(s)" if stream.days_left is not None else ""
    return f"{name:<12} {share}{kept}{left}"


def _size(bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if bytes < 1024:
            return f"{bytes:.0f} {unit}"
        bytes /= 1024
    return f"{bytes:.1f} GiB"


def _part_line(part: RunningPart) -> str:
    state = f"pid {part.pid}" if part.alive else "down"
    line = f"  {part.name:<12}{state:<12}"
    if part.position is not None:
        line += f"at {part.position:<11}"
    if _is_projector(part):
        line += f"{_lag_text(part.lag_s or 0.0)}, {part.lag_events or 0} events waiting"
    elif part.view_age_s is not None:
        line += _view_text(part.view_age_s, part.view_behind_s)
    return f"{line.rstrip()}{_restarted(part.restarts)}"


def _lag_text(behind_s: float) -> str:
    if behind_s >= NEVER_S:
        return "behind by an unknown time"
    return f"up to {duration(behind_s)} behind"


def _view_text(age_s: float, behind_s: float | None) -> str:
    if age_s >= NEVER_S:
        return "no view yet"
    heard = f"projector seen {duration(age_s)} ago"
    if behind_s is None:
        return heard
    if behind_s >= NEVER_S:
        return f"behind by an unknown time, {heard}"
    return f"up to {duration(behind_s)} behind, {heard}"


def _restarted(times: int) -> str:
    return f"   restarted {times} time(s)" if times else ""
