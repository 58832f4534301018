"""The test kit, for our tests and for users: real brokers, a log in memory, and builders of events.

Builders take only the values that a test is about.

Not here: the kit of one package (`joulie_projections.testing`).
In: a few values. Out: facts, records, a running broker, a log in memory.
"""

from joulie_bus.testing.any_facts import ANY_FACTS, any_fact
from joulie_bus.testing.brokers import (
    Backup,
    bare_broker,
    connected,
    full,
    memory_log,
    running_broker,
    running_cluster,
)
from joulie_bus.testing.cards import card, claim, confirmed, released
from joulie_bus.testing.clock import NOON, SECOND, VirtualClock, noon
from joulie_bus.testing.examples import one_of_each
from joulie_bus.testing.nodes import hardware, inventory, node_seen, polled, power
from joulie_bus.testing.plans import (
    asleep,
    caps,
    completed,
    draining,
    eco,
    performance,
    plan_made,
    waking,
)
from joulie_bus.testing.pods import ask, bound, decided, pending
from joulie_bus.testing.stamping import CLUSTER, Senders, Voices, producer, records, sender_of
from joulie_bus.testing.waiting import refusals, stored, until

__all__ = [
    "ANY_FACTS",
    "CLUSTER",
    "NOON",
    "SECOND",
    "Backup",
    "Senders",
    "VirtualClock",
    "Voices",
    "any_fact",
    "ask",
    "asleep",
    "bare_broker",
    "bound",
    "caps",
    "card",
    "claim",
    "completed",
    "confirmed",
    "connected",
    "decided",
    "draining",
    "eco",
    "full",
    "hardware",
    "inventory",
    "memory_log",
    "node_seen",
    "noon",
    "one_of_each",
    "pending",
    "performance",
    "plan_made",
    "polled",
    "power",
    "producer",
    "records",
    "refusals",
    "released",
    "running_broker",
    "running_cluster",
    "sender_of",
    "stored",
    "until",
    "waking",
]
