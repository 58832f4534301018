"""Points for nodes near the pods that a pod is placed together with.

Near is the same node, and the same value of a label such as that of a rack. Members that were just
answered for are not bound yet, and unknown. So the first ones choose a domain by a hash of their
group's name: they come together without knowing of each other, and a replay computes the same.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from joulie_bus.core.setting_fields import setting
from joulie_extender.gpu.fit import HIGHEST
from joulie_extender.terms.term import Term, TermInput
from joulie_projections.state.state import gang_of
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.labels import NO_LABELS

LEVELS = "nvidia.com/gpu.clique,joulie.io/rack,topology.kubernetes.io/zone"
OFF = "none"  # of the levels
MOST = 100.0  # points
_NONE = -1
_ROOMY = 2  # a domain with at least the largest number of candidates, divided by this, has room


def labels_of_levels(text: str) -> str:
    """names of labels, the narrowest first, with commas; empty for the node alone; or none"""
    return ",".join(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class GangSettings:
    gang_points: float = 40.0  # of 100: how near a node is to the pod's group; 0 for no such term
    gang_levels: str = setting(
        labels_of_levels,
        "SCORE_GANG_LEVELS",
        LEVELS,
        "Labels whose values say which nodes are near each other, the narrowest first; none for no "
        "points by nearness",
    )

    def of_gangs(self) -> dict[str, float | str]:
        if self.gang_levels == OFF:
            return {"gang_points": 0.0, "gang_levels": ""}
        return {"gang_levels": self.gang_levels}


class Level(NamedTuple):
    names: Sequence[str]  # of its domains
    domain: Ints  # of each row, by its place in `names`; or _NONE


class Gang(Term[GangSettings]):
    """A part of the score is how near the node is, so that no other term can hide the distance."""

    name = "gang"
    head = "gang"
    meaning = "Change by the nearness of the node to the pod's group, against the nearest candidate"
    settings = GangSettings
    is_last = True
    highest = 100.0

    def value(self, asked: TermInput, settings: GangSettings) -> Floats | None:
        gang = gang_of(asked.pod)
        if not gang or not settings.gang_points or not len(asked.rows):
            return None
        near = _nearness(gang, asked.twin_columns, asked.rows, settings.gang_levels)
        if near is None or near.min() == near.max():
            return None
        whole = self.highest * (1 + near - near.max())
        found: Floats = settings.gang_points / MOST * (whole - asked.total)
        return found


class GangOfTen(Gang):
    """Of a score from 0 to 10, for kube-schedulers that ask about cards alone."""

    highest = HIGHEST


def _nearness(gang: str, columns: TwinColumns, rows: Ints, labels: str) -> Floats | None:
    """0 to 1; None if no candidate is near anything."""
    levels = _levels(columns, labels)
    members, counts = columns.gangs.of(gang)
    if len(members):
        return _to_members(levels, members, counts, rows)
    return _to_chosen(levels, gang, rows)


def _to_members(levels: Sequence[Level], members: Ints, counts: Ints, rows: Ints) -> Floats:
    """The mean over the node and all levels of the share of members in the same domain."""
    height = 1 + max(int(members.max()), int(rows.max()))
    found, used = _share(np.arange(height), members, counts, rows), 1
    for level in levels:
        if (level.domain[members] != _NONE).any():
            found += _share(level.domain, members, counts, rows)
            used += 1
    return found / used


def _share(domain: Ints, members: Ints, counts: Ints, rows: Ints) -> Floats:
    known = domain[members] != _NONE
    weights = counts[known]
    number = np.bincount(domain[members][known], weights, int(domain.max()) + 1)
    here = domain[rows]
    found: Floats = np.where(here == _NONE, 0.0, number[here] / counts.sum())
    return found


def _to_chosen(levels: Sequence[Level], gang: str, rows: Ints) -> Floats | None:
    """The domain that the name of the group chooses among those with room, the broadest first."""
    inside: Bools = np.ones(len(rows), np.bool_)
    found, used = np.zeros(len(rows)), 0
    for level in reversed(levels):
        here = level.domain[rows]
        among = here[inside & (here != _NONE)]
        if not len(among):
            continue
        sizes = np.bincount(among)
        roomy = np.flatnonzero(sizes * _ROOMY >= sizes.max()).tolist()
        ranks = {_rank(gang, level.names[at]): at for at in roomy}
        chosen = ranks[max(ranks)]
        inside = inside & (here == chosen)
        found += inside
        used += 1
    return found / used if used else None


@lru_cache(maxsize=4096)
def _rank(gang: str, domain: str) -> bytes:
    return hashlib.sha256(f"{gang}\0{domain}".encode()).digest()


def _levels(columns: TwinColumns, labels: str) -> Sequence[Level]:
    """Computed once per set of labels, which change rarely."""
    height, memo = len(columns.columns["at"]), columns.labels.memo
    kept: Sequence[Level] | None = memo.get((Level, labels, height))  # type: ignore[assignment]
    if kept is None:
        rows = [*columns.labels.rows[:height]]
        rows += [NO_LABELS] * (height - len(rows))
        kept = [_level(rows, label) for label in labels.split(",") if label]
        memo[Level, labels, height] = kept
    return kept


def _level(rows: Sequence[Mapping[str, str]], label: str) -> Level:
    names = sorted({value for row in rows if (value := row.get(label))})
    place = {name: at for at, name in enumerate(names)}
    domain = [place.get(row.get(label, ""), _NONE) for row in rows]
    return Level(names, np.array(domain, np.int64))
