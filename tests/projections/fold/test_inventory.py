"""What an agent found replaces what it found before, and concerns its own node only."""

from joulie_bus.events import Fact, NodeGone
from joulie_bus.testing import card, inventory, node_seen, records
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft


def folded(*facts: Fact) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return state


def test_the_cards_of_an_agent_are_rows_with_their_holder() -> None:
    state = folded(node_seen("n1"), inventory("n1", "a", "b", owner="pod-1"))
    assert {uuid: (row.node, row.owner, row.source) for uuid, row in state.gpus.items()} == {
        "a": ("n1", "pod-1", "agent"),
        "b": ("n1", "pod-1", "agent"),
    }
    hardware = state.nodes["n1"].hardware
    assert hardware is not None
    assert (hardware.source, hardware.gpu_count) == ("agent", 2)


def test_a_card_that_is_no_longer_listed_is_gone() -> None:
    state = folded(node_seen("n1"), inventory("n1", "a", "b"), inventory("n1", "b"))
    assert set(state.gpus) == {"b"}


def test_a_sick_card_is_not_healthy() -> None:
    state = folded(node_seen("n1"), inventory("n1", "a", problem="XID 79"))
    assert not state.gpus["a"].healthy


def test_an_agent_takes_no_card_of_a_node_that_is_there() -> None:
    state = folded(
        node_seen("n1"), node_seen("n2"), inventory("n1", "a"), inventory("n2", "a", "b")
    )
    assert {uuid: row.node for uuid, row in state.gpus.items()} == {"a": "n1", "b": "n2"}


def test_a_card_moves_once_its_node_is_gone() -> None:
    state = folded(
        node_seen("n1"),
        node_seen("n2"),
        inventory("n1", "a"),
        NodeGone(node="n1"),
        inventory("n2", "a"),
    )
    assert state.gpus["a"].node == "n2"


def test_the_cards_of_a_removed_node_are_gone() -> None:
    assert folded(node_seen("n1"), inventory("n1", "a"), NodeGone(node="n1")).gpus == {}


def test_a_card_of_a_resource_stays_when_an_agent_lists_none() -> None:
    state = folded(node_seen("n1"), card("a", "n1"), inventory("n1", "b"))
    assert set(state.gpus) == {"a", "b"}
