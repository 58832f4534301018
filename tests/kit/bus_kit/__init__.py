"""The kit of the bus: real brokers, a log in memory, and builders of events.

Builders take only the values that a test is about.
"""

from bus_kit.any_facts import ANY_FACTS, any_fact
from bus_kit.brokers import (
    Backup,
    bare_broker,
    connected,
    full,
    memory_log,
    running_broker,
    running_cluster,
)
from bus_kit.cards import card, claim, confirmed, released
from bus_kit.clock import NOON, SECOND, VirtualClock, noon
from bus_kit.examples import one_of_each
from bus_kit.nodes import hardware, inventory, node_seen, polled, power
from bus_kit.plans import (
    asleep,
    caps,
    completed,
    draining,
    eco,
    performance,
    plan_made,
    waking,
)
from bus_kit.pods import ask, bound, decided, pending
from bus_kit.stamping import CLUSTER, Senders, Voices, producer, records, sender_of
from bus_kit.waiting import refusals, stored, until

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
