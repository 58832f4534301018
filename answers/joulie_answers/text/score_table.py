"""The scores of candidates as a table: what they follow from in the unit of the formula, such as
watts, and then the points, which add up to the score."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from joulie_answers.schema.responses import Candidate, TermSet
from joulie_answers.text.tables import TextTable
from joulie_extender.catalogue.terms import FORMULAS, formula_of, point_names
from joulie_extender.terms.freshness import SOURCE_SENTENCES

CLAMPED = "clamped"  # what a score lies beyond its bounds
LEAST = 0.005  # points that two places show
HEADS = {term.name: term.head for formula in FORMULAS.values() for term in formula.terms}
NOT_APPLIED, UNKNOWN = "-", "unknown"
ANSWERED = "answered"
ANSWER_ALONE = "the log has only the terms of the best, and those of this node cannot be computed"


class Line(NamedTuple):
    node: str
    points: dict[str, float] | None  # they add up to the score; None: unknown
    terms: TermSet


def score_table(candidates: Sequence[Candidate], bound_to: str) -> Iterator[str | TextTable]:
    lines = [_line(each.node, each.terms) for each in candidates if each.terms is not None]
    points, inputs = point_columns(lines), _input_columns(lines)
    watts = [HEADS[name] for name in inputs]
    shown = ["score", *(HEADS.get(name) or name for name in points)]
    head = ["", *([*watts, "|"] if watts else ()), *shown, "from"]
    rows = [_row(line, points, inputs, bound_to) for line in lines]
    alone = [each for each in candidates if each.terms is None]
    rows += [[_marked(each.node, bound_to), *_alone(each, head), ANSWERED] for each in alone]
    yield TextTable(head, rows, {*shown, *watts}, indent=2)
    yield from rules_behind([line.terms.source for line in lines])
    if alone:
        yield f"  {ANSWERED:<12} {ANSWER_ALONE}"


def _alone(candidate: Candidate, head: Sequence[str]) -> list[str]:
    """Of a candidate without terms: its answer in place of the score."""
    cells = {"|": "|", "score": str(candidate.answer)}
    return [cells.get(title, "") for title in head[1:-1]]


def _row(line: Line, points: Sequence[str], inputs: Sequence[str], bound_to: str) -> list[str]:
    watts = [*_watts(line.terms, inputs), "|"] if inputs else []
    score = f"{line.terms.score:.2f}"
    return [
        *(_marked(line.node, bound_to), *watts, score, *_points(line, points), line.terms.source)
    ]


def _marked(node: str, bound_to: str) -> str:
    return f"{'*' if node == bound_to else ' '}{node}"


def rules_behind(sources: Sequence[str]) -> Iterator[str]:
    """One line per source that occurs; a fresh reading requires no explanation."""
    for source in dict.fromkeys(sources):
        if source in SOURCE_SENTENCES:
            yield f"  {source:<12} {SOURCE_SENTENCES[source]}"


def _line(node: str, terms: TermSet) -> Line:
    points = terms.points
    if points is None:
        return Line(node, None, terms)
    beyond = terms.score - sum(points.values())
    return Line(node, points if abs(beyond) < LEAST else {**points, CLAMPED: beyond}, terms)


def point_columns(lines: Sequence[Line]) -> list[str]:
    """The terms that apply to some line, in the order of the sum."""
    shown = [line.points for line in lines if line.points is not None]
    known = [*dict.fromkeys([*point_names(), *(name for points in shown for name in points)])]
    return [name for name in known if any(abs(each.get(name, 0.0)) >= LEAST for each in shown)]


def _input_columns(lines: Sequence[Line]) -> list[str]:
    """What the points follow from, where that are watts."""
    names = [
        term.name
        for line in lines
        if (formula := formula_of(line.terms.source)) is not None
        for term in formula.inputs
    ]
    return [
        name
        for name in dict.fromkeys(names)
        if HEADS[name] and any(line.terms.values.get(name) for line in lines)
    ]


def _points(line: Line, names: Sequence[str]) -> list[str]:
    """No formula applies to a node without data: only its own points are numbers."""
    if line.points is None:
        return [UNKNOWN] * len(names)
    usual = None if formula_of(line.terms.source) is None else 0.0
    return [_cell(line.points.get(name, usual), NOT_APPLIED) for name in names]


def _watts(terms: TermSet, names: Sequence[str]) -> list[str]:
    usual = None if formula_of(terms.source) is None else 0.0
    return [_cell(terms.values.get(name, usual), UNKNOWN) for name in names]


def _cell(value: float | None, instead: str) -> str:
    """No minus before a zero."""
    return instead if value is None else f"{round(value, 2) + 0.0:.2f}"
