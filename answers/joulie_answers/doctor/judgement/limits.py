"""Clocks, certificates and free space: quantities with a limit."""

from typing import NamedTuple

from joulie_answers.doctor.judgement.findings import Finding, Unseen, fail, not_seen, ok, warn
from joulie_bus.streams.records import StreamSize
from joulie_projections.store.standbys import Standbys

SKEW_WARN_S, SKEW_FAIL_S = 2.0, 30.0  # an HTTP date has whole seconds
EXPIRY_WARN_DAYS = 14.0  # cert-manager renews a certificate of 90 days 30 days before
STREAM_WARN, STREAM_FAIL = 0.8, 0.95
DAYS_WARN = 1.0  # until a stream is full
DISK_WARN, DISK_FAIL = 0.15, 0.05
DAY_S = 86_400
# A projector folds three times as many; the disks of the broker and the archive give up before.
EVENTS_WARN = 20_000


class ClockSeen(NamedTuple):
    ahead_s: float  # of the other clock
    round_trip_s: float


class Certificate(NamedTuple):
    name: str
    expires_s: float  # Unix time


class DiskSeen(NamedTuple):
    free: float
    size: float
    database: float


SYNCHRONOUS = "Set synchronous_standby_names to 'FIRST 1 (name)', or 'ANY 1 (two, three)' for two."


def standbys(seen: Standbys) -> Finding:
    """A failover keeps every commit only if a standby has each of them."""
    check, connected = "standby", f"{seen.connected} connected"
    if not seen.synchronous:
        if not seen.connected:
            return ok(check, "none")
        lost = f"{connected}, none synchronous: a failover loses the newest commits"
        return warn(check, lost, SYNCHRONOUS)
    shown = f"{connected}, synchronous: {seen.synchronous}"
    if not seen.connected:
        advice = "Every commit waits for a standby: start one, or clear the setting."
        return fail(check, shown, advice)
    if seen.connected > 1 and not seen.synchronous.upper().startswith("ANY"):
        return warn(check, f"{shown}, no quorum: one may lack the newest commits", SYNCHRONOUS)
    return ok(check, shown)


def clock(other: str, seen: ClockSeen | Unseen) -> Finding:
    check = f"clock of {other}"
    if isinstance(seen, Unseen):
        return not_seen(check, seen, "Compare the clocks by other means.")
    least_s = max(0.0, abs(seen.ahead_s) - seen.round_trip_s)
    side = "ahead of" if seen.ahead_s > 0 else "behind"
    shown = f"{abs(seen.ahead_s):.1f} s {side} ours, +- {seen.round_trip_s:.1f} s"
    advice = "Synchronize both machines (NTP): ages, Leases and certificates depend on it."
    if least_s > SKEW_FAIL_S:
        return fail(check, shown, advice)
    if least_s > SKEW_WARN_S:
        return warn(check, shown, advice)
    return ok(check, shown)


def certificate(seen: Certificate, now_s: float) -> Finding:
    check = f"certificate {seen.name}"
    days = (seen.expires_s - now_s) / DAY_S
    if days <= 0:
        return fail(check, f"expired {-days:.0f} days ago", "Renew it and restart what uses it.")
    if days < EXPIRY_WARN_DAYS:
        return warn(check, f"expires in {days:.1f} days", "Renew it.")
    return ok(check, f"valid for {days:.0f} more days")


def stream(size: StreamSize, days_left: float | None) -> Finding:
    check = f"stream {size.stream}"
    if not size.max_bytes:
        return ok(check, f"{_mib(size.bytes)}, no limit")
    share = size.bytes / size.max_bytes
    left = "" if days_left is None else f", full in {days_left:.0f} days"
    seen = f"{share:.0%} of {_mib(size.max_bytes)}{left}"
    is_soon = days_left is not None and days_left < DAYS_WARN
    if size.drops_old or (share < STREAM_WARN and not is_soon):
        return ok(check, seen)
    advice = "Archive and trim (`joulie archive --trim`); a full stream refuses messages."
    return (fail if share >= STREAM_FAIL else warn)(check, seen, advice)


def events(per_second: float) -> Finding:
    """Facts of all streams together."""
    check, shown = "facts", f"{per_second:,.0f} a second"
    if per_second < EVENTS_WARN:
        return ok(check, shown)
    advice = (
        "Let the sources of power report less often, or split the cluster in two (JOULIE_CLUSTER)."
    )
    return warn(check, shown, advice)


def disk(seen: DiskSeen | Unseen) -> Finding:
    if isinstance(seen, Unseen):
        return not_seen("disk", seen, "Look at the free space of the projector's volume.")
    share = seen.free / seen.size if seen.size else 0.0
    shown = f"{share:.0%} of {_mib(seen.size)} free; the database has {_mib(seen.database)}"
    advice = "Enlarge the volume, or archive and trim (`joulie archive --trim`)."
    if share < DISK_FAIL:
        return fail("disk", shown, advice)
    return warn("disk", shown, advice) if share < DISK_WARN else ok("disk", shown)


class ArchiveSeen(NamedTuple):
    """The archiver, as its metrics describe it."""

    failing: bool
    behind_s: float  # the age of the oldest fact that is not archived
    due_s: float  # since when a trim could have deleted something
    free: float
    size: float


GROWS = "the broker and the database only grow until they are full"
BEHIND_WARN_S, BEHIND_FAIL_S = 4 * 3600.0, 12 * 3600.0  # a stream drops readings after 24 h
DUE_WARN_S = 86_400.0


def archive(seen: ArchiveSeen | Unseen | None) -> Finding:
    """None: no archiver runs."""
    check = "archive"
    if seen is None:
        advice = "Set archive.enabled of the chart, or ARCHIVE_DIR of `joulie up`."
        return warn(check, f"none runs: {GROWS}", advice)
    if isinstance(seen, Unseen):
        return not_seen(check, seen, "Look at the log of the archiver.")
    advice = "The log lines not_archived and not_trimmed of the archiver give the reason."
    shown = f"{seen.behind_s / 3600:.1f} h behind; {_share_free(seen)} of its disk free"
    if seen.failing or seen.behind_s > BEHIND_FAIL_S:
        return fail(check, f"{'fails, ' if seen.failing else ''}{shown}", advice)
    if seen.size and seen.free / seen.size < DISK_WARN:
        full = fail if seen.free / seen.size < DISK_FAIL else warn
        return full(check, shown, "Enlarge its volume: a full archive trims nothing.")
    if seen.behind_s > BEHIND_WARN_S:
        return warn(check, shown, advice)
    if seen.due_s > DUE_WARN_S:
        return warn(check, f"{shown}; not trimmed for {seen.due_s / DAY_S:.1f} days", advice)
    return ok(check, shown)


def _share_free(seen: ArchiveSeen) -> str:
    return f"{seen.free / seen.size:.0%}" if seen.size else "an unknown share"


def _mib(count: float) -> str:
    mib = count / 1024**2
    return f"{mib:.0f} MiB" if mib < 10_000 else f"{mib / 1024:.0f} GiB"
