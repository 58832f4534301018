"""Compares decisions under two sets of rules, one by one and in sum."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from joulie_bus.events import Terms

NOTHING: Mapping[str, int] = MappingProxyType({})


class ScoreChange(NamedTuple):
    """The best node of one decision, then and now."""

    entry: int
    pod: str
    namespace: str
    workload: str
    before: Terms
    after: Terms
    same_scale: bool  # both scores are of one way to score: else their difference means nothing
    watts_before: float | None  # added on that node, as `added_watts` counts; None: unknown
    watts_after: float | None
    over_cap_before: bool
    over_cap_after: bool
    cores: float
    gpus: float

    @property
    def moved(self) -> bool:
        return self.before.node != self.after.node

    @property
    def has_watts(self) -> bool:
        return self.watts_before is not None and self.watts_after is not None


class Group(NamedTuple):
    """Sums over a group of decisions, such as those of one workload class."""

    decisions: int
    cores: float  # requested by the pods of the group
    gpus: float
    changed: int  # decisions with another best node
    score_shift: float | None  # mean change of the best score; None: of no decision comparable
    watts_before: float  # added on the best nodes, summed over the decisions where both are known
    watts_after: float
    watts_unknown: int  # decisions that are not in these sums
    over_cap_before: int  # best nodes that the pod would push over their cap
    over_cap_after: int


class Comparison(NamedTuple):
    all: Group
    by_class: Mapping[str, Group]
    by_namespace: Mapping[str, Group]
    changes: list[ScoreChange]
    score_deltas: list[float]  # changes of the best score where it has one scale, in log order
    left_out: Mapping[str, int]  # decisions that were not computed, by the reason
    step: int = 1  # of a sample: every such scored pod is in it


def compare_changes(
    changes: Sequence[ScoreChange], left_out: Mapping[str, int] = NOTHING, step: int = 1
) -> Comparison:
    by_class: dict[str, list[ScoreChange]] = defaultdict(list)
    by_namespace: dict[str, list[ScoreChange]] = defaultdict(list)
    for change in changes:
        by_class[change.workload].append(change)
        by_namespace[change.namespace].append(change)
    return Comparison(
        all=_group(changes),
        by_class={name: _group(part) for name, part in sorted(by_class.items())},
        by_namespace={name: _group(part) for name, part in sorted(by_namespace.items())},
        changes=[change for change in changes if change.moved],
        score_deltas=_shifts(changes),
        left_out=left_out,
        step=step,
    )


def _shifts(changes: Iterable[ScoreChange]) -> list[float]:
    return [each.after.score - each.before.score for each in changes if each.same_scale]


def _group(changes: Sequence[ScoreChange]) -> Group:
    moved, counted = _shifts(changes), [change for change in changes if change.has_watts]
    return Group(
        decisions=len(changes),
        cores=sum(change.cores for change in changes),
        gpus=sum(change.gpus for change in changes),
        changed=sum(change.moved for change in changes),
        score_shift=sum(moved) / len(moved) if moved else None,
        watts_before=sum(change.watts_before or 0.0 for change in counted),
        watts_after=sum(change.watts_after or 0.0 for change in counted),
        watts_unknown=len(changes) - len(counted),
        over_cap_before=sum(change.over_cap_before for change in changes),
        over_cap_after=sum(change.over_cap_after for change in changes),
    )
