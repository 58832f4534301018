"""The decision log: rows of other programs, and entries that no head signs."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_answers.doctor.judgement.findings import Finding, fail, ok, warn
from joulie_answers.views.status import why_not_signed

UNSIGNED_WARN_S = 60.0  # a head is signed each 10 s


class LogSeen(NamedTuple):
    foreign: int  # rows of other programs, which the projector moved or put right
    unsigned_s: float  # the age of the first entry that no head signs
    why: str = ""  # what the projector says, if it signs nothing


def log_from(gauges: Mapping[str, float]) -> LogSeen:
    """As the projector that leads counts since its start."""
    foreign = int(gauges.get("joulie_foreign_rows_total", 0))
    return LogSeen(foreign, gauges.get("joulie_head_age_seconds", 0.0), why_not_signed(gauges))


def of_log(seen: LogSeen) -> list[Finding]:
    return [_foreign(seen.foreign), _signatures(seen)]


def _foreign(count: int) -> Finding:
    check = "foreign rows"
    if not count:
        return ok(check, "none")
    rows = "1 row" if count == 1 else f"{count} rows"
    advice = (
        "Find the program that has the projector's right to the database, and change the "
        "password; `joulie verify` names the first rows."
    )
    return warn(check, f"{rows} of another program in the tables of the log, put aside", advice)


def _signatures(seen: LogSeen) -> Finding:
    check = "signatures"
    if seen.why:
        advice = "The line not_signed of the projector's log names the entry; see docs/audit.md."
        return fail(check, f"nothing is signed: {seen.why}", advice)
    if seen.unsigned_s > UNSIGNED_WARN_S:
        shown = f"the oldest entry without a signed head is {seen.unsigned_s:.0f} s old"
        return warn(check, shown, "See the lines not_signed and key_change_failed of the log.")
    return ok(check, "the log is signed")
