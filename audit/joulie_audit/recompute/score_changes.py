"""Compares decisions under two sets of rules, one by one and in sum."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import Terms


class ScoreChange(NamedTuple):
    """The best node of one decision, then and now."""

    entry: int
    pod: str
    namespace: str
    workload: str
    before: Terms
    after: Terms
    over_cap_before: bool
    over_cap_after: bool
    cores: float
    gpus: float

    @property
    def moved(self) -> bool:
        return self.before.node != self.after.node


class Group(NamedTuple):
    """Sums over a group of decisions, such as those of one workload class."""

    decisions: int
    cores: float  # requested by the pods of the group
    gpus: float
    changed: int  # decisions with another best node
    score_shift: float  # mean change of the best score
    watts_before: float  # marginal watts of the best nodes, summed
    watts_after: float
    over_cap_before: int  # best nodes that the pod would push over their cap
    over_cap_after: int


class Comparison(NamedTuple):
    all: Group
    by_class: Mapping[str, Group]
    by_namespace: Mapping[str, Group]
    changes: list[ScoreChange]
    score_deltas: list[float]  # changes of the best score, in log order


def compare_changes(changes: Sequence[ScoreChange]) -> Comparison:
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
        score_deltas=[change.after.score - change.before.score for change in changes],
    )


def _group(changes: Sequence[ScoreChange]) -> Group:
    moved = [change.after.score - change.before.score for change in changes]
    return Group(
        decisions=len(changes),
        cores=sum(change.cores for change in changes),
        gpus=sum(change.gpus for change in changes),
        changed=sum(change.moved for change in changes),
        score_shift=sum(moved) / len(moved) if moved else 0.0,
        watts_before=sum(change.before.marginal_w for change in changes),
        watts_after=sum(change.after.marginal_w for change in changes),
        over_cap_before=sum(change.over_cap_before for change in changes),
        over_cap_after=sum(change.over_cap_after for change in changes),
    )
