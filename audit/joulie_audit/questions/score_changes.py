"""How far answers moved between two ways of deciding, decision by decision and in sum. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import Terms


class ScoreChange(NamedTuple):
    """One decision, then and now; the winner is the best of our answer."""

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
    """Decisions that have something in common."""

    decisions: int
    cores: float  # the work that the watts are for
    gpus: float
    changed: int  # another winner
    score_shift: float  # of the winner's score, on average
    watts_before: float  # marginal watts of the winners, summed
    watts_after: float
    over_cap_before: int  # winners that the pod would push over their cap
    over_cap_after: int


class Comparison(NamedTuple):
    all: Group
    by_class: Mapping[str, Group]
    by_namespace: Mapping[str, Group]
    changes: list[ScoreChange]
    score_deltas: list[float]  # of the winners' scores, in the order of the log


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
