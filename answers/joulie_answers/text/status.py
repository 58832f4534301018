"""What runs and how old the data is, as lines; and what of it is stale, as sentences."""

from collections.abc import Iterator, Sequence

from joulie_answers.schema.responses import (
    Elsewhere,
    Leader,
    RefusedOnSample,
    Replica,
    ReplicaSpool,
    RunningPart,
    Status,
    StorageSizes,
    StreamSize,
)
from joulie_bus.core.times import duration
from joulie_bus.streams.incomplete import described
from joulie_bus.streams.records import IncompleteCopy
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

MOST_NAMED = 10  # refused pods in the text; all are in the JSON
SILENT_S = 5.0  # a view gets four heartbeats a second; a longer silence is a fault
PAUSED = "paused until a client reads it"
BEHIND_S = 2.0  # a projector that keeps up is behind by less
BROKER_SILENT_S = 3.0  # the projector asks the broker four times a second
SPOOLED_S = 10.0  # decisions are published ten times a second
UNSIGNED_S = 60.0  # a head is signed each 10 s
LEDGER_BEHIND_S = 10.0  # of joulie_projections.energy.report; a test compares them


# --- what is stale ------------------------------------------------------------------------------


def warnings_of(found: Status) -> list[str]:
    return [
        *_disk_warnings(found),
        *part_warnings(found.parts, f"{found.data}/logs"),
        *(_elsewhere_warnings(found.elsewhere.projector) if found.elsewhere else ()),
        *_leader_warnings(found),
        *_spool_warnings(found.spools),
        *_signature_warnings(found),
        *_reading_warnings(found),
        *(_ledger_warnings(found.ledger_behind_s) if found.running else ()),
    ]


def _disk_warnings(found: Status) -> list[str]:
    """First, because the others follow from it."""
    if not found.room.full:
        return []
    what = "facts are not folded, and pods are answered without an entry in the log"
    return [f"the disk of {found.data} is full ({found.room.full}): {what}. Make room there"]


def part_warnings(parts: Sequence[RunningPart], logs: str) -> list[str]:
    """Parts that are down, do not answer, or are behind; the projector before its readers."""
    warnings, projector_s = list[str](), None
    for part in sorted(parts, key=lambda part: not _is_projector(part)):
        log = f"{logs}/{part.name}.log"
        if not part.alive:
            warnings.append(f"{part.name} is down; see {log}")
        elif not part.answers and part.name != "nats-server":
            warnings.append(
                f"{part.name}{_started(part)} does not answer for its metrics; see {log}"
            )
        elif _is_projector(part):
            projector_s = part.lag_s
            warnings += projector_warnings(part)
        elif part.paused is not None:
            warnings += [*_view_warnings(part, projector_s), *_decision_warnings(part)]
    return warnings


def _started(part: RunningPart) -> str:
    return "" if part.up_s is None else f", started {duration(part.up_s)} ago,"


def _is_projector(part: RunningPart) -> bool:
    return part.name == Role.PROJECTOR


def projector_warnings(part: RunningPart) -> list[str]:
    if part.position is None:
        waits = "it waits for the broker, the database, or the lease of another projector"
        return [f"{part.name}{_started(part)} does not lead yet: {waits}"]
    silent_s = part.broker_silent_s or 0.0
    copies = [
        IncompleteCopy(each.server, Stream(each.stream), each.missing) for each in part.incomplete
    ]
    holes = [f"broker: {text}" for text in described(copies).values()]
    why = "does not answer the others: it is down, cut off, or its disk is full"
    lost = [f"broker: server {name} {why}" for name in part.lost_servers]
    lag = [*_lag_warnings(part), *lost, *holes]
    if silent_s <= BROKER_SILENT_S:
        return lag
    silence = f"the {part.name} has read no answer of a majority for {duration(silent_s)}"
    return [f"broker: {silence}: it is down, is not reached, or has no CPU", *lag]


def _lag_warnings(part: RunningPart) -> list[str]:
    name, behind_s = part.name, part.lag_s
    if behind_s is None:
        return [f"{name} has not folded the facts of before its start yet"]
    if behind_s > BEHIND_S:
        late = "it reads answers of the broker late"
        why = f"{part.lag_events} facts are not folded yet" if part.lag_events else late
        return [f"{name} is up to {duration(behind_s)} behind the broker: {why}"]
    return []


def _view_warnings(part: RunningPart, projector_s: float | None) -> list[str]:
    """A view that is behind because of the projector is not reported besides it."""
    name, age_s, behind_s = part.name, part.view_age_s, part.view_behind_s
    if age_s is None:
        return [f"{name} has received no heartbeat of the projector yet"]
    if age_s > SILENT_S:
        return [f"{name} received no heartbeat of the projector for {duration(age_s)}"]
    if part.paused:
        return []
    if behind_s is None:
        unknown = f"{name} does not know how far it is behind the broker"
        return [] if projector_s is None else [unknown]
    explained_s = BEHIND_S if (projector_s or 0.0) <= BEHIND_S else 2 * (projector_s or 0.0)
    if behind_s > explained_s:
        how_far = f"up to {duration(behind_s)} behind the broker"
        return [f"{name} is {how_far}, and the projector {_known(projector_s)}"]
    return []


def _known(age_s: float | None) -> str:
    return "by an unknown time" if age_s is None else duration(age_s)


def _decision_warnings(part: RunningPart) -> Iterator[str]:
    if part.missing:
        what = f"the signed log lacks {part.missing} entries that the {part.name} published"
        yield f"{what}, or has them with another content: `joulie prove --missing`"


def _spool_warnings(found: Sequence[ReplicaSpool]) -> Iterator[str]:
    """A spool of this machine that is not known has an extender that does not answer."""
    for each in found:
        if sentence := spool_warning(each):
            yield sentence


def spool_warning(found: ReplicaSpool) -> str:
    """Empty if its entries are published in time, and where it is not known."""
    if found.waiting is None and found.heard_s is not None:
        silence = f"{found.name} has not reported its spool for {duration(found.heard_s)}"
        return f"{silence}: it is down, or does not reach the broker"
    oldest_s = found.oldest_s or 0.0
    if not found.waiting or oldest_s <= SPOOLED_S:
        return ""
    what = f"{found.waiting} entries of {found.name} are not at the broker"
    return f"{what}, the oldest for {duration(oldest_s)}: it takes them late, or not"


def _elsewhere_warnings(leader: Leader) -> list[str]:
    if leader.behind_s is None:
        return ["the projector does not know how far it is behind the broker"]
    if leader.behind_s > BEHIND_S:
        behind = f"{leader.behind_s:.1f} s behind the broker"
        return [f"the projector is {behind}, or does not reach it"]
    return []


def _ledger_warnings(behind_s: float | None) -> list[str]:
    """From the database: a ledger that is down or hangs has no metrics that say so."""
    if behind_s is None:
        return ["the ledger cannot be read: no figures of energy are known"]
    if behind_s <= LEDGER_BEHIND_S:
        return []
    what = f"the ledger lacks facts of the last {duration(behind_s)}"
    return [f"{what}: figures of energy end before that"]


def _leader_warnings(found: Status) -> list[str]:
    """A lease that ends says nothing of other components."""
    if found.running or found.commit_age_s is None:
        return []
    old = f"the newest fact is {duration(found.commit_age_s)} old"
    if found.leaderless_s is None:
        return [f"no projector leads: the last one has ended, and {old}"]
    why = "it is down, or reaches no majority of the broker"
    return [f"no projector leads since {duration(found.leaderless_s)}: {why}; {old}"]


def _signature_warnings(found: Status) -> list[str]:
    why = next((part.not_signed for part in found.parts if part.not_signed), "")
    if why:
        return [f"the log is not signed any more: {why}; see not_signed in the projector's log"]
    sentence = unsigned_warning(found.unsigned_s) if found.running else ""
    return [sentence] if sentence else []


def unsigned_warning(unsigned_s: float | None) -> str:
    """Empty if heads are signed in time."""
    if (unsigned_s or 0.0) <= UNSIGNED_S:
        return ""
    age = duration(unsigned_s or 0.0)
    return f"the log is not signed: the first entry without a signed head is {age} old"


def _reading_warnings(found: Status) -> list[str]:
    missing = found.readings.nodes - found.readings.fresh
    if not missing or not found.running:
        return []
    return [f"{missing} node(s) without a fresh reading are scored by the model"]


# --- all of it ----------------------------------------------------------------------------------


def status_text(found: Status) -> str:
    return "\n".join(
        [
            *([f"health       {found.health.text}"] if found.health else ()),
            _running_line(found),
            *map(_part_line, found.parts),
            *(_elsewhere_lines(found.elsewhere) if found.elsewhere else ()),
            *_log_lines(found),
            *map(_spool_line, found.spools),
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
        return "no projector leads" if found.commit_age_s is not None else "not running"
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
    if found.foreign_rows:
        put = "of other programs in the tables of the log, put aside; `joulie verify` names them"
        yield f"foreign      {found.foreign_rows} row(s) {put}"


def _elsewhere_lines(found: Elsewhere) -> list[str]:
    leader = found.projector
    known = leader.behind_s is not None
    behind = f"{leader.behind_s:.1f} s" if known else "by an unknown time"
    projector = f"process {_process(leader.owner)}, epoch {leader.epoch}, {behind} behind"
    return [
        f"  projector   {projector}, lease for {leader.lease_s:.1f} s more",
        *map(_extender_line, found.extenders),
    ]


def _spool_line(found: ReplicaSpool) -> str:
    if found.waiting is None:
        return f"spool        of {found.name}: not known"
    waits = f", the oldest for {duration(found.oldest_s)}" if found.oldest_s else ""
    return f"spool        {found.waiting} entries wait in that of {found.name}{waits}"


def _extender_line(found: Replica) -> str:
    return f"  {found.name:<12}last answer in the log {duration(found.age_s)} ago"


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
        yield f"database     {_size(found.database_bytes)}"
    if found.free_bytes is not None:
        yield f"disk         {_size(found.free_bytes)} free"


def _stream_line(name: str, stream: StreamSize) -> str:
    held, most = stream.bytes, stream.max_bytes
    share = f"{held / most:.0%} of {_size(most)}" if most else _size(held)
    kept = f", of {duration(stream.kept_s)}" if stream.kept_s else ""
    left = _full_in(stream.days_left) if stream.days_left is not None else ""
    return f"{name:<12} {share}{kept}{left}"


def _full_in(days: float) -> str:
    return f", full in {days:.0f} day(s)" if days >= 1 else f", FULL in {days * 24:.0f} h"


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
    if _is_projector(part) and part.position is not None:
        waiting = "" if part.lag_events is None else f", {part.lag_events} events waiting"
        line += f"{_behind_text(part.lag_s)}{waiting}"
    elif part.paused is not None:
        line += _view_text(part)
    return f"{line.rstrip()}{_restarted(part.restarts)}"


def _behind_text(behind_s: float | None) -> str:
    if behind_s is None:
        return "behind by an unknown time"
    return f"up to {duration(behind_s)} behind"


def _view_text(part: RunningPart) -> str:
    if part.view_age_s is None:
        return "no view yet"
    how_far = PAUSED if part.paused else _behind_text(part.view_behind_s)
    return f"{how_far}, projector seen {duration(part.view_age_s)} ago"


def _restarted(times: int) -> str:
    return f"   restarted {times} time(s)" if times else ""
