"""What is known of a candidate, and how old it may be."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from joulie_extender.staleness import FreshnessSettings
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import Source


class ScoreBasis(IntEnum):
    """The data that a candidate's score is computed from."""

    UNDISCOVERED = -1  # fresh, but nothing is known of its hardware: neutral too
    NEUTRAL = 0  # nothing fresh is known
    PREDICTED = 1  # no fresh power reading: caps and cooling alone
    MEASURED = 2
    CARDS = 3  # not asked: the score is about cards alone
    ENERGY = 4  # the score follows from watts, not from headroom


# Plain integers: comparing enum members is slower.
NEUTRAL, MEASURED = int(ScoreBasis.NEUTRAL), int(ScoreBasis.MEASURED)


SOURCES = {int(basis): basis.name.lower() for basis in ScoreBasis}  # as entries name them
WITHOUT_DATA = {  # why a node gets the neutral score
    SOURCES[ScoreBasis.NEUTRAL]: "no twin, or a stale one",
    SOURCES[ScoreBasis.UNDISCOVERED]: "no hardware facts, so no cap",
}
# What a score rests on, for all sources other than a fresh reading.
_NEUTRAL_SCORE = "the neutral score, never above the best known candidate"
SOURCE_SENTENCES = {
    SOURCES[ScoreBasis.PREDICTED]: (
        "no fresh power reading: headroom from caps and cooling, minus the model's estimate for "
        "all pods there"
    ),
    **{source: f"{why}: {_NEUTRAL_SCORE}" for source, why in WITHOUT_DATA.items()},
    SOURCES[ScoreBasis.ENERGY]: (
        "the score falls with the watts that the pod adds, beyond those of the cheapest candidate"
    ),
}


class Freshness(NamedTuple):
    fresh: Bools  # whether the twin is up to date
    read: Bools  # whether there is a fresh reading
    basis: Ints


def freshness_of(
    twin_columns: TwinColumns, now: int, view_age_ms: int, settings: FreshnessSettings
) -> Freshness:
    fresh = _fresh_rows(twin_columns, now, view_age_ms, settings)
    read = fresh & _has_reading(twin_columns, now, settings)
    return Freshness(fresh, read, _basis(twin_columns, fresh, read))


def _fresh_rows(
    twin_columns: TwinColumns, now: int, view_age_ms: int, settings: FreshnessSettings
) -> Bools:
    """Rows with an up-to-date twin. A stale view makes all of them stale."""
    updated = twin_columns.updated_at()
    if view_age_ms > settings.staleness_s * 1000:
        return np.zeros(len(updated), np.bool_)
    return (updated > 0) & (now - updated <= settings.staleness_s * 1e9)


def _has_reading(twin_columns: TwinColumns, now: int, settings: FreshnessSettings) -> Bools:
    sampled = twin_columns.ints("sampled_at")
    return (sampled > 0) & (now - sampled <= settings.staleness_s * 1e9)


def _basis(twin_columns: TwinColumns, fresh: Bools, read: Bools) -> Ints:
    """Without hardware facts there is no cap to compare with: neutral, whatever was measured."""
    known = twin_columns.columns["hardware"] != Source.NONE
    capped = twin_columns.floats("capped_w") > 0
    kind = np.where(read & capped, ScoreBasis.MEASURED, ScoreBasis.PREDICTED)
    return np.where(fresh, np.where(known, kind, ScoreBasis.UNDISCOVERED), ScoreBasis.NEUTRAL)
