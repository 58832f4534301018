"""How far answers moved between two ways of deciding, decision by decision and in sum. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import Terms


class Shift(NamedTuple):
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


class Compared(NamedTuple):
    all: Group
    by_class: Mapping[str, Group]
    by_namespace: Mapping[str, Group]
    changes: list[Shift]
    shifts: list[float]  # of the winners' scores, in the order of the log


def compared(shifts: Sequence[Shift]) -> Compared:
    by_class: dict[str, list[Shift]] = defaultdict(list)
    by_namespace: dict[str, list[Shift]] = defaultdict(list)
    for shift in shifts:
        by_class[shift.workload].append(shift)
        by_namespace[shift.namespace].append(shift)
    return Compared(
        all=_group(shifts),
        by_class={name: _group(part) for name, part in sorted(by_class.items())},
        by_namespace={name: _group(part) for name, part in sorted(by_namespace.items())},
        changes=[shift for shift in shifts if shift.moved],
        shifts=[shift.after.score - shift.before.score for shift in shifts],
    )


def _group(shifts: Sequence[Shift]) -> Group:
    moved = [shift.after.score - shift.before.score for shift in shifts]
    return Group(
        decisions=len(shifts),
        cores=sum(shift.cores for shift in shifts),
        gpus=sum(shift.gpus for shift in shifts),
        changed=sum(shift.moved for shift in shifts),
        score_shift=sum(moved) / len(moved) if moved else 0.0,
        watts_before=sum(shift.before.marginal_w for shift in shifts),
        watts_after=sum(shift.after.marginal_w for shift in shifts),
        over_cap_before=sum(shift.over_cap_before for shift in shifts),
        over_cap_after=sum(shift.over_cap_after for shift in shifts),
    )
