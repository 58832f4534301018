"""The newest state that answers are about: a console has it in memory, a command reads it."""

from collections.abc import Sequence
from typing import Protocol

from joulie_answers.schema.responses import ReplicaSpool, Stamp
from joulie_answers.views.cluster_view import Overview
from joulie_projections.state.completeness import ViewAges


class Newest(Protocol):
    @property
    def overview(self) -> Overview: ...
    @property
    def ages(self) -> ViewAges: ...  # of `overview`
    @property
    def position(self) -> int: ...  # the overview may be slightly older
    @property
    def entries(self) -> int: ...  # of the decision log
    def spools(self) -> Sequence[ReplicaSpool]: ...  # of the extenders that are known
    def stamp(self) -> Stamp: ...  # of an answer that needs no overview
