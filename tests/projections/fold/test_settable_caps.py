"""What is known of the limits that the writer of a node can set."""

import pytest

from bus_kit import CLUSTER, bound, noon, power, producer, records
from joulie_bus.events import AnyEvent, CapsSettable, Fact, NodeGone, NodeSeen
from joulie_bus.streams.records import Record
from joulie_projections.fold.sequence import fold
from joulie_projections.state.rows import encode
from joulie_projections.state.state import NOT_SETTABLE, ClusterState, NodeState, SettableCaps
from joulie_projections.state.state_changes import Draft

CAN = CapsSettable(node="n1", cpu=True, because="no cards")
CANNOT = CapsSettable(node="n1", because="the writer has ended")


def seen(uid: str = "u1") -> NodeSeen:
    return NodeSeen(node="n1", uid=uid, ready=True, schedulable=True)


def folded(sent: list[Record]) -> ClusterState:
    state = ClusterState()
    draft = Draft(state)
    result = fold(draft, sent, 0)
    draft.commit()
    assert result.poison == []
    return state


def known(*facts: Fact) -> SettableCaps:
    return folded(records(*facts)).nodes["n1"].settable


def test_the_newest_report_counts_from_when_it_was_stored() -> None:
    assert known(seen(), CAN) == SettableCaps(noon(1), ("cpu",), "no cards")
    assert known(seen(), CAN, CANNOT) == SettableCaps(noon(2), (), "the writer has ended")


def test_a_report_that_is_older_than_the_newest_one_changes_nothing() -> None:
    node, first, can, cannot = records(seen(), CANNOT, CAN, CANNOT)
    assert folded([node, first, cannot, can]).nodes["n1"].settable.kinds == ()


def test_a_repeated_report_is_no_sign_of_life() -> None:
    node, can = records(seen(), CAN)
    later = can._replace(at=noon(600))
    assert folded([node, can, later]).nodes["n1"].settable.at == noon(1)


def test_a_writer_that_restarts_is_followed() -> None:
    node, can, cannot = records(seen(), CAN, CANNOT)
    [again] = records(CAN, boot="b2", start_s=9)
    state = folded([node, can, cannot, again])
    assert state.nodes["n1"].settable == SettableCaps(noon(9), ("cpu",), "no cards")


def test_nothing_is_known_of_a_node_that_was_removed_and_added_again() -> None:
    assert known(seen(), CAN, NodeGone(node="n1"), seen("u2")) is NOT_SETTABLE


def test_a_report_of_a_node_that_is_gone_is_none_of_the_next_one_of_its_name() -> None:
    assert known(seen(), NodeGone(node="n1"), CAN, seen("u2")) is NOT_SETTABLE


def test_a_node_that_is_gone_has_nothing_to_set_although_its_pods_are_still_known() -> None:
    assert known(seen(), bound("p", "n1"), NodeGone(node="n1"), CAN) is NOT_SETTABLE


def test_another_machine_of_the_same_name_is_not_the_one_that_was_reported() -> None:
    assert known(seen(), CAN, seen("u2")) is NOT_SETTABLE
    assert known(seen(), CAN, seen()).kinds == ("cpu",)


@pytest.mark.parametrize("sender", ["tester", "agent-n1", "agent-n2=caps", "agent-n2"])
def test_no_other_program_changes_what_is_known(sender: str) -> None:
    node, cannot = records(seen(), CANNOT)
    forged = [forgery(CAN, sender, CLUSTER.of(CAN)), forgery(CAN, sender, "joulie.tel.test.n1")]
    state = ClusterState()
    draft = Draft(state)
    result = fold(draft, [node, cannot, *forged], 0)
    draft.commit()
    assert (state.nodes["n1"].settable.kinds, len(result.poison)) == ((), 2)


def forgery(event: AnyEvent, sender: str, subject: str) -> Record:
    message = producer(sender).stamp(event)
    return Record(records(event)[0].stream, 9, noon(9), message.data, subject)


def test_a_row_of_a_node_without_a_writer_is_as_before() -> None:
    node = folded(records(seen(), power("n1", 300))).nodes["n1"]
    assert b"settable" not in encode(node)
    assert b"settable" not in encode(NodeState(ordinal=0, at=0))
