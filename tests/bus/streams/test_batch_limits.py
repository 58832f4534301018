"""The limits of what a broker keeps for one agent leave room for the readings of large nodes."""

import uuid

import pytest

from bus_kit import hardware, producer
from joulie_bus.events import AnyEvent, InventoryRead, TelemetrySampled
from joulie_bus.events.agents import CardRead
from joulie_bus.events.bounds import MOST_METERED_PODS, MOST_READ_CARDS
from joulie_bus.jetstream.publisher import HEADERS
from joulie_bus.streams.accounts import SMALL_PAYLOAD
from joulie_bus.streams.batch_limits import MAX_BATCH, MAX_OPEN

CARDS = [f"GPU-{uuid.uuid4()}" for _ in range(MOST_READ_CARDS)]
COUNTED = 2**60
EVENTS = [
    InventoryRead(
        node="a-node",
        hardware=hardware("a-node"),
        cards=tuple(
            CardRead(
                uuid=card,
                model="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
                total_mb=81_559,
                owner=str(uuid.uuid4()),
                holder=f"a-namespace-of-usual-length/a-pod-of-a-replica-set-{card[-12:]}",
                link_group="0",
            )
            for card in CARDS
        ),
    ),
    TelemetrySampled(
        node="a-node",
        power_mw=10**9,
        card_mw=dict.fromkeys(CARDS, 10**6),
        card_uj=(COUNTED,) * len(CARDS),
        energy_uj=COUNTED,
        counted_from=COUNTED,
        pod_uj={str(uuid.uuid4()): COUNTED for _ in range(MOST_METERED_PODS)},
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.TYPE)
def test_an_agent_may_send_what_it_reads_from_the_largest_node(event: AnyEvent) -> None:
    message = producer("agent-a-node").stamp(event)

    assert len(message.data) + len(message.id) + HEADERS < SMALL_PAYLOAD


def test_the_open_batches_of_one_agent_are_a_quarter_of_the_memory_of_the_broker() -> None:
    assert MAX_OPEN * MAX_BATCH * SMALL_PAYLOAD <= 2**30 // 4
