"""The figures of a status are those of the page."""

from bus_kit import NOON, SECOND, hardware, node_seen, power, records
from joulie_answers.views.cluster_view import ClusterSnapshot, Overview
from joulie_answers.views.status import LogFigures, status_from
from joulie_bus.events import AnyEvent
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

FRESH_S = 300.0
EMPTY = LogFigures(
    position=1,
    epoch=1,
    committed_at=NOON,
    decisions=0,
    entries=0,
    signed_to=0,
    quarantined=0,
    foreign_rows=0,
    unsigned_since=None,
    ledger_behind_s=0.0,
    elsewhere=None,
    leaderless_s=None,
)


def state_of(*facts: AnyEvent) -> ClusterState:
    found = ClusterState()
    draft = Draft(found)
    fold(draft, records(*facts, step_s=0.001), 0)
    draft.commit()
    return found


def test_a_node_whose_agent_reports_before_its_object_is_seen_counts_as_on_the_page() -> None:
    state = state_of(node_seen("n"), hardware("n"), power("n", 100), power("late", 50))
    now = NOON + SECOND
    twins = TwinColumns.of(state.nodes, NOON)

    status = status_from(EMPTY, state, [], now, FRESH_S)
    page = Overview(ClusterSnapshot(1, now, state, twins), FRESH_S).totals()

    assert (status.readings.nodes, status.readings.fresh) == (page.nodes, page.measured) == (2, 2)
