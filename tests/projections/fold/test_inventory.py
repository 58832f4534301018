"""What an agent found replaces what it found before, and concerns its own node only."""

import pytest
from msgspec.structs import replace

from bus_kit import card, claim, inventory, node_seen, records
from bus_kit.cards import device
from joulie_bus.errors import OutOfBounds
from joulie_bus.events import Fact, NodeGone, codec
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


N1, N2 = node_seen("n1"), node_seen("n2")
CLAIMED = (inventory("n1", "a"), inventory("n2", "a", "b"))


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param((N1, N2, *CLAIMED), id="both nodes are there"),
        pytest.param((N2, *CLAIMED), id="the first node is not known yet"),
        pytest.param((N2, *CLAIMED, N1), id="the first node comes later"),
        pytest.param((N1, N2, NodeGone(node="n1"), *CLAIMED), id="the first node is away"),
        pytest.param((N1, N2, *reversed(CLAIMED)), id="the thief comes first"),
        pytest.param((N1, N2, *CLAIMED, *CLAIMED), id="both repeat it"),
    ],
)
def test_a_card_that_agents_of_two_nodes_list_is_on_none_of_them(facts: tuple[Fact, ...]) -> None:
    state = folded(*facts)

    assert (state.gpus["a"].node, state.gpus["a"].contested) == ("", ("n1", "n2"))
    assert not state.gpus["a"].healthy
    assert (state.gpus["b"].node, state.gpus["b"].contested) == ("n2", ())


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(inventory("n2", "b"), id="the other agent lists it no more"),
        pytest.param(NodeGone(node="n2"), id="the other node is gone"),
    ],
)
def test_a_card_is_on_the_only_node_whose_agent_still_lists_it(ends: Fact) -> None:
    state = folded(N1, N2, *CLAIMED, ends, inventory("n1", "a"))

    assert (state.gpus["a"].node, state.gpus["a"].contested) == ("n1", ())


def test_a_claim_on_a_contested_card_is_kept() -> None:
    claimed = claim("a", "pod-1")
    state = folded(N1, N2, CLAIMED[0], claimed, CLAIMED[1])
    later = folded(N1, N2, CLAIMED[0], claimed, CLAIMED[1], inventory("n2", "b"), CLAIMED[0])

    assert list(state.gpus["a"].claims) == [claimed.pod_uid]
    assert (list(later.gpus["a"].claims), later.gpus["a"].node) == ([claimed.pod_uid], "n1")


@pytest.mark.parametrize(
    "elsewhere", [card("a", "n1"), device("a", "n1")], ids=["a resource", "a driver of DRA"]
)
def test_no_agent_takes_a_card_that_a_resource_or_a_driver_has_on_another_node(
    elsewhere: Fact,
) -> None:
    for facts in ((N1, N2, elsewhere, CLAIMED[1]), (N2, elsewhere, CLAIMED[1], CLAIMED[1])):
        state = folded(*facts)

        assert (state.gpus["a"].node, state.gpus["a"].contested) == ("n1", ())


def test_an_agent_that_lists_a_card_no_more_takes_it_from_no_other_node() -> None:
    moved = (N1, N2, inventory("n1", "a"), card("a", "n2"), inventory("n1"))

    assert folded(*moved).gpus["a"].node == "n2"


@pytest.mark.parametrize("name", ["GPU-AB", "gpu-ab", "Gpu-ab", "MIG-x_y", "a b", "-a", "a.", ""])
def test_a_card_whose_name_no_object_can_have_or_that_is_another_in_lower_case_is_refused(
    name: str,
) -> None:
    found = inventory("n2", "GPU-ab")
    codec.encode(found)
    odd = replace(found, cards=(replace(found.cards[0], uuid=name),))

    with pytest.raises(OutOfBounds, match="cards"):
        codec.encode(odd)


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
