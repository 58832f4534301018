"""The process that computes a report for a console: its command line and its result.

Imports nothing of a report, which a console does not keep in memory.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

MODULE = "joulie_answers.report.served"
UNBOUNDED = "`joulie report` where the data is has no such limit."


class ReportRefusal(msgspec.Struct):
    """Why there is no report, with the status of the response."""

    status: int
    why: str


class Served(msgspec.Struct):
    """A report or a refusal."""

    report: dict[str, Any] | None = None
    refusal: ReportRefusal | None = None


def words_of(data: Path, from_ms: int, to_ms: int) -> list[str]:
    return [sys.executable, "-m", MODULE, str(data), str(from_ms), str(to_ms)]


def too_large(what: str) -> ReportRefusal:
    return ReportRefusal(410, f"The report is too large for one query: {what}. {UNBOUNDED}")
