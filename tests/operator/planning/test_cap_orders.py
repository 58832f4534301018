"""Only nodes that opted in get an order; a cap in per cent is one of the hardware's maximum."""

from msgspec.structs import replace

from joulie_bus.events import CapOrder, Fact
from joulie_bus.testing import caps, hardware, node_seen, records
from joulie_operator.planning.cap_orders import cap_orders
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft


def orders(*facts: Fact) -> list[CapOrder]:
    draft = Draft(state := ClusterState())
    fold(draft, records(*facts), 0)
    draft.commit()
    return list(cap_orders(state, 7))


def test_a_node_that_never_opted_in_gets_no_order() -> None:
    assert orders(node_seen("n1"), hardware("n1", gpus=2), caps("n1", 60, 60)) == []


def test_another_value_of_the_label_is_no_consent() -> None:
    seen = node_seen("n1", gpus=2, caps="true")
    assert orders(seen, hardware("n1", gpus=2), caps("n1", 60, 60)) == []


def test_a_cap_in_per_cent_becomes_watts_of_the_hardware() -> None:
    (order,) = orders(
        node_seen("n1", caps="enforce"), hardware("n1", watts=700, gpus=2), caps("n1", 60, 50)
    )
    assert (order.cpu_mw_per_socket, order.gpu_mw, order.view) == (420_000, 350_000, 7)


def test_without_a_cap_the_order_has_none() -> None:
    for facts in ((), (caps("n1", 100, 100),)):
        (order,) = orders(node_seen("n1", caps="enforce"), hardware("n1", gpus=2), *facts)
        assert (order.cpu_mw_per_socket, order.gpu_mw) == (None, None)


def test_a_cap_of_unknown_hardware_is_not_ordered() -> None:
    (order,) = orders(node_seen("n1", caps="enforce"), caps("n1", 60, 60))
    assert (order.cpu_mw_per_socket, order.gpu_mw) == (None, None)


def test_a_node_that_is_gone_gets_no_order() -> None:
    draft = Draft(state := ClusterState())
    fold(draft, records(node_seen("n1", caps="enforce")), 0)
    draft.commit()
    state.nodes["n1"] = replace(state.nodes["n1"], present=False)
    assert list(cap_orders(state, 7)) == []
