"""What an answer rests on: one moment of the view, and one look at the clock. Pure."""

from typing import NamedTuple

from joulie_projections.board import Board


class Moment(NamedTuple):
    board: Board
    position: int
    view_age_ms: int
    now: int
