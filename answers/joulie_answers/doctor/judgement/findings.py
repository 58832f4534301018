"""What a check found."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


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


def as_text(findings: Sequence[Finding]) -> str:
    width = max((len(each.check) for each in findings), default=0)
    lines = []
    for each in findings:
        lines.append(f"{each.level.upper():<5} {each.check:<{width}}  {each.seen}")
        if each.advice:
            lines.append(f"{'':<6}{'':<{width}}  -> {each.advice}")
    counts = [sum(each.level is level for each in findings) for level in Level]
    return "\n".join([*lines, "{} ok, {} to look at, {} failed".format(*counts)])
