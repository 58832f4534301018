"""The context of a decision: the twins' columns at one position, and one reading of the clock."""

from typing import NamedTuple

from joulie_bus.events import NodesInFlight
from joulie_projections.twin.columns import TwinColumns


class DecisionContext(NamedTuple):
    twin_columns: TwinColumns
    position: int
    view_age_ms: int  # since the last message of the projector
    now: int
    behind_ms: int | None = None  # how far the view is behind the streams; None: not recorded
    incarnation: str = ""  # of the database that the view read
    # What pods take that were answered for and that the view has not; None: not considered.
    in_flight: NodesInFlight | None = None

    @property
    def oldest_ms(self) -> int:
        """The age that rules about stale data use."""
        return max(self.view_age_ms, self.behind_ms or 0)
