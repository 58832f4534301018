"""What a check found."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from joulie_answers.text.tables import TextTable, TextWithTables


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    check: str
    level: Level
    seen: str
    advice: str = ""  # what to do; empty if nothing


class Unseen(NamedTuple):
    """Why something could not be observed."""

    why: str


def ok(check: str, seen: str) -> Finding:
    return Finding(check, Level.OK, seen)


def warn(check: str, seen: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, seen, advice)


def fail(check: str, seen: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, seen, advice)


def not_seen(check: str, what: Unseen, advice: str) -> Finding:
    """An unknown state is a warning: it is neither good nor proved to be bad."""
    return warn(check, f"not seen: {what.why}", advice)


def exit_code(findings: Sequence[Finding], accepted: Level = Level.OK) -> int:
    """1 if a finding is worse than what is accepted, else 0. 2 is for an examination that was not
    done, as it is for every command."""
    levels = [*Level]  # from good to bad
    return int(any(levels.index(each.level) > levels.index(accepted) for each in findings))


def as_text(findings: Sequence[Finding]) -> TextWithTables:
    """The advice is below what was seen: both are sentences, and need the width."""
    rows = []
    for each in findings:
        rows.append((each.level.upper(), each.check, each.seen))
        if each.advice:
            rows.append(("", "", f"-> {each.advice}"))
    counts = [sum(each.level is level for each in findings) for level in Level]
    table = TextTable(("LEVEL", "CHECK", "SEEN"), rows)
    return TextWithTables.of([table, "{} ok, {} to look at, {} failed".format(*counts)])
