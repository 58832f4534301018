"""What a writer on the node reports counts; without one, plans count as carried out."""

from bus_kit import caps, hardware, node_seen, records
from joulie_bus.events import CapsApplied, CapsRefused, Fact
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.facility import NO_HALLS
from joulie_projections.twin.twin import twin_of

SEEN = (node_seen("n1"), hardware("n1", watts=700, gpus=2), caps("n1", 60, 50))


def folded(*facts: Fact) -> NodeState:
    draft = Draft(state := ClusterState())
    fold(draft, records(*SEEN, *facts), 0)
    draft.commit()
    return state.nodes["n1"]


def budget(*facts: Fact) -> float:
    return twin_of(folded(*facts), NO_HALLS).capped_w


def test_a_plan_counts_while_no_writer_reports() -> None:
    assert budget() == 700 * 0.6 + 2 * 700 * 0.5


def test_a_cap_that_is_applied_counts_as_the_hardware_shows_it() -> None:
    applied = CapsApplied(node="n1", cpu_mw_per_socket=420_000, gpu_mw=420_000)
    assert budget(applied) == 420 + 2 * 420


def test_a_cap_that_is_not_applied_leaves_the_whole_budget() -> None:
    assert budget(CapsApplied(node="n1")) == 700 + 2 * 700


def test_a_card_that_is_capped_by_itself_lowers_the_budget_by_its_own_part() -> None:
    applied = CapsApplied(node="n1", card_mw={"g1": 300_000})
    assert budget(applied) == 700 + 700 + 300
    assert budget(applied, CapsApplied(node="n1")) == 700 + 2 * 700


def test_the_reason_of_a_refusal_is_kept_until_the_next_report() -> None:
    refused = CapsRefused(node="n1", because="nvml/GPU-1: another program has set it")
    assert "another program" in folded(CapsApplied(node="n1"), refused).refused_caps
    assert folded(refused, CapsApplied(node="n1")).refused_caps == ""
