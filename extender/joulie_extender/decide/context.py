"""The context of a decision: the twins' columns at one position, and one reading of the clock."""

from typing import NamedTuple

from joulie_projections.twin.columns import TwinColumns


class DecisionContext(NamedTuple):
    twin_columns: TwinColumns
    position: int
    view_age_ms: int
    now: int
