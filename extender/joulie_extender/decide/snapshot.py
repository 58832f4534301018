"""What an answer rests on: one moment of the view, and one look at the clock. Pure."""

from typing import NamedTuple

from joulie_projections.twin.columns import TwinColumns


class Moment(NamedTuple):
    twin_columns: TwinColumns
    position: int
    view_age_ms: int
    now: int
