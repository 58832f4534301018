"""The scores of candidates as a table: points that add up to the score, then the watts behind."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from joulie_answers.schema.responses import Candidate, TermSet
from joulie_extender.catalogue.terms import FORMULAS, formula_of, point_names
from joulie_extender.terms.freshness import SOURCE_SENTENCES

CLAMPED = "clamped"  # what a score lies beyond its bounds
LEAST = 0.005  # points that two places show
HEADS = {term.name: term.head for formula in FORMULAS.values() for term in formula.terms}


class Line(NamedTuple):
    node: str
    points: dict[str, float]  # they add up to the score
    terms: TermSet


def score_table(candidates: Sequence[Candidate], bound_to: str) -> Iterator[str]:
    lines = [_line(each.node, each.terms) for each in candidates if each.terms is not None]
    points, inputs = point_columns(lines), _input_columns(lines)
    heads = ["score", *(HEADS.get(name) or name for name in points)]
    watts = [HEADS[name] for name in inputs]
    width = max((len(line.node) for line in lines), default=0) + 1
    behind = f"  |{_heads(watts)}" if watts else ""
    yield f"  {'':<{width}} {_heads(heads)}{behind}  from"
    for line in lines:
        mark = "*" if line.node == bound_to else " "
        cells = [line.terms.score, *(line.points.get(name, 0.0) for name in points)]
        values = [line.terms.values.get(name, 0.0) for name in inputs]
        behind = f"  |{_cells(values, watts)}" if watts else ""
        yield f"  {mark}{line.node:<{width}}{_cells(cells, heads)}{behind}  {line.terms.source}"
    yield from rules_behind([line.terms.source for line in lines])


def rules_behind(sources: Sequence[str]) -> Iterator[str]:
    """One line per source that occurs; a fresh reading requires no explanation."""
    for source in dict.fromkeys(sources):
        if source in SOURCE_SENTENCES:
            yield f"  {source:<12} {SOURCE_SENTENCES[source]}"


def _line(node: str, terms: TermSet) -> Line:
    beyond = terms.score - sum(terms.points.values())
    points = terms.points if abs(beyond) < LEAST else {**terms.points, CLAMPED: beyond}
    return Line(node, points, terms)


def point_columns(lines: Sequence[Line]) -> list[str]:
    """The terms that apply to some line, in the order of the sum."""
    known = [*dict.fromkeys([*point_names(), *(name for line in lines for name in line.points)])]
    return [
        name for name in known if any(abs(line.points.get(name, 0.0)) >= LEAST for line in lines)
    ]


def _input_columns(lines: Sequence[Line]) -> list[str]:
    """What the points follow from, where that are watts."""
    names = [term.name for line in lines for term in formula_of(line.terms.source).inputs]
    return [
        name
        for name in dict.fromkeys(names)
        if HEADS[name] and any(line.terms.values.get(name) for line in lines)
    ]


def _heads(heads: Sequence[str]) -> str:
    return "".join(f"{head:>{_width(head)}}" for head in heads)


def _cells(values: Sequence[float], heads: Sequence[str]) -> str:
    rounded = (round(value, 2) + 0.0 for value in values)  # no minus before a zero
    return "".join(
        f"{value:>{_width(head)}.2f}" for value, head in zip(rounded, heads, strict=True)
    )


def _width(head: str) -> int:
    return max(len(head), 6) + 2
