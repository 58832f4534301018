import math

import msgspec
import pytest

from bus_kit import CLUSTER, NOON, power, producer
from joulie_bus.events import AnyEvent, NodeGone, SettingsDeclared, codec
from joulie_bus.events.codec import Envelope, Origin
from joulie_bus.log.producer import Producer

NO_NUMBER = SettingsDeclared(settings="s1", code="1", values={"weight": math.nan})
NO_NODE = power("", 100)


def test_numbers_follow_one_another_without_a_hole() -> None:
    says = producer("sim", "b7")

    assert [says.stamp(power("n1", watts)).id for watts in range(3)] == [
        "sim:b7:1",
        "sim:b7:2",
        "sim:b7:3",
    ]


@pytest.mark.parametrize("event", [NO_NUMBER, NO_NODE], ids=["no number", "no node"])
def test_a_refused_event_takes_no_number(event: AnyEvent) -> None:
    says = producer()
    with pytest.raises(ValueError, match=r"may hold|empty name"):
        says.stamp(event)

    assert codec.origin_of(says.stamp(power("n1", 100)).id, "here").seq == 1


def test_a_message_holds_producer_event_time_and_cause() -> None:
    event = NodeGone(node="n.1")
    message = producer().stamp(event, cause="a:b:1", corr="plan-3")

    assert (message.subject, message.id) == ("joulie.obs.test.node.n=2E1", "tester:b1:1")
    assert codec.open_envelope(message.data, "here") == Envelope(
        id="tester:b1:1",
        type="node.gone",
        v=1,
        key="n.1",
        ts=NOON,
        cause="a:b:1",
        corr="plan-3",
        data=msgspec.Raw(codec.encode(event)),
    )


def test_every_life_of_a_producer_has_a_name_of_its_own() -> None:
    first, second = (Producer("sim", CLUSTER, lambda: NOON) for _ in range(2))

    assert first.boot != second.boot
    assert codec.origin_of(first.stamp(power("n1", 100)).id, "here") == Origin("sim", first.boot, 1)
