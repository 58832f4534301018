"""Entries of the decision log, one a line, the newest last."""

from collections.abc import Iterator, Sequence

from joulie_answers.schema.responses import DecisionBrief
from joulie_bus.core.times import rfc3339


def decisions_text(newest_first: Sequence[DecisionBrief]) -> str:
    return "\n".join(decision_lines(newest_first))


def decision_lines(newest_first: Sequence[DecisionBrief]) -> Iterator[str]:
    yield from map(_line, reversed(newest_first))


def _line(brief: DecisionBrief) -> str:
    at = rfc3339(brief.at_ms, "seconds")
    pod = f"{brief.namespace}/{brief.name}" if brief.name else ""
    reason = f": {brief.reason}" if brief.refused and brief.reason else ""
    return f"{brief.entry:>9}  {at}  {brief.verb:<17} {pod:<32} {brief.text}{reason}"
