"""Business rules without code: points for node labels, for all pods or for the pods of a team.

Text in, rules out, and points for each row. The rules in force are part of the settings that
each decision names, so replay needs no file.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.fit import HIGHEST
from joulie_extender.terms.term import Amount, Term, TermInput
from joulie_projections.twin.arrays import Floats
from joulie_projections.twin.labels import LabelRows

MOST = 100.0  # points; a score has no more
Points = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Preference(NamedTuple):
    label: str
    value: str
    points: float


class Team(NamedTuple):
    name: str
    namespaces: tuple[str, ...]
    prefers: tuple[Preference, ...]


class Preferences(NamedTuple):
    all_pods: tuple[Preference, ...] = ()
    teams: tuple[Team, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PreferenceWeights:
    preferences: Preferences = Preferences()


class _Prefer(msgspec.Struct, forbid_unknown_fields=True):
    label: Name
    value: Name
    points: Points


class _Team(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    namespaces: tuple[Name, ...] = ()
    prefer: tuple[_Prefer, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    team: tuple[_Team, ...] = ()


def label_scores(text: str) -> tuple[Preference, ...]:
    """label=value:points, with commas between, such as karpenter.sh/capacity-type=spot:5"""
    return tuple(_label_score(part.strip()) for part in text.split(",") if part.strip())


def _label_score(part: str) -> Preference:
    label, equals, rest = part.partition("=")
    value, _, points = rest.rpartition(":")
    try:
        number = float(points)
    except ValueError:
        number = np.nan
    if not (label and equals and value and abs(number) <= MOST):
        raise ValueError(f"{part!r} is not label=value:points, with at most {MOST:g} points")
    return Preference(label, value, number)


def teams_in(text: str) -> tuple[Team, ...]:
    """Raises ValueError, with the place of the mistake."""
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error
    names = [team.name for team in found.team]
    if len(set(names)) < len(names):
        raise ValueError("two teams have one name")
    return tuple(
        Team(team.name, team.namespaces, tuple(map(_preference, team.prefer)))
        for team in found.team
    )


def _preference(prefer: _Prefer) -> Preference:
    return Preference(prefer.label, prefer.value, prefer.points)


def written(preferences: Preferences) -> str:
    """One text, as a declaration of settings stores it; `read` is the inverse."""
    return msgspec.json.encode(preferences).decode()


def read(text: str) -> Preferences:
    return msgspec.json.decode(text, type=Preferences) if text else Preferences()


def _of(pod: PodAsk, preferences: Preferences) -> Iterator[Preference]:
    """A pod belongs to the team that its label names; without a label, to that of its namespace."""
    yield from preferences.all_pods
    for team in preferences.teams:
        if pod.team == team.name or (not pod.team and pod.namespace in team.namespaces):
            yield from team.prefers


def _points(prefers: tuple[Preference, ...], labels: LabelRows, height: int) -> Floats:
    """Computed once per set of labels, which change rarely."""
    kept = labels.memo.get((prefers, height))
    if isinstance(kept, np.ndarray):
        return kept
    points = np.zeros(height)
    # A loop, because `sum` of floats gives different bits since Python 3.12.
    for row, found in enumerate(labels.rows):
        for each in prefers:
            if found.get(each.label) == each.value:
                points[row] += each.points
    labels.memo[prefers, height] = points
    return points


class Wishes(Term[PreferenceWeights]):
    """On the scale of 0 to 100."""

    name = "wishes"
    head = "wishes"
    meaning = "Points for labels of the node that all pods, or those of the team, prefer"
    settings = PreferenceWeights

    def value(self, asked: TermInput, settings: PreferenceWeights) -> Floats | None:
        prefers = tuple(_of(asked.pod, settings.preferences))
        if not prefers:
            return None
        twin_columns = asked.twin_columns
        return _points(prefers, twin_columns.labels, len(twin_columns.columns["at"]))[asked.rows]


class WishesOfTen(Wishes):
    """Of a score from 0 to 10, for kube-schedulers that ask about cards alone."""

    def points(self, value: Amount, _: PreferenceWeights) -> Amount:
        return value / HIGHEST
