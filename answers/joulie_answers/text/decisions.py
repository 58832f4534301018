"""Entries of the decision log, one a line, the newest last."""

from collections.abc import Iterator, Sequence

from joulie_answers.schema.responses import DecisionBrief
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.core.times import rfc3339

_HEAD = ("ENTRY", "AT", "KIND", "WHAT")


def decisions_text(newest_first: Sequence[DecisionBrief]) -> str:
    rows = [_cells(each) for each in reversed(newest_first)]
    return TextWithTables.of([TextTable(_HEAD, rows, {"ENTRY"})])


def decision_lines(newest_first: Sequence[DecisionBrief]) -> Iterator[str]:
    """As they come: the columns do not know what follows."""
    for brief in reversed(newest_first):
        entry, at, verb, what = _cells(brief)
        yield f"{entry:>9}  {at}  {verb:<17} {what}"


def _cells(brief: DecisionBrief) -> tuple[str, ...]:
    return (str(brief.entry), rfc3339(brief.at_ms, "seconds"), brief.verb, brief.sentence)
