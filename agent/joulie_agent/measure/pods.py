"""The energy of each pod above idle, out of processor time and of the cards that it has.

The energy of the node without its cards is shared by processor time. The part of it above idle
follows from the load, as where nothing meters the processors. The energy of a card above its idle
power goes to the pods that have it, in equal parts if they share it in time.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

IDLE_CARD_SHARE = 0.1  # of the highest limit of a card, as the ledger's model has it
_NOTHING: Mapping[str, float] = {}


class Used(NamedTuple):
    """What a node has used in some time; microjoules, and nanoseconds of processors."""

    passed_s: float
    rest_uj: float  # without its cards
    busy: float  # the part of all processor time that was busy
    busy_ns: float
    pod_ns: Mapping[str, int]  # by uid
    card_uj: Mapping[str, float] = _NOTHING
    card_max_mw: float = 0.0
    holders: Mapping[str, Sequence[str]] = {}  # uids by card


def shares_uj(used: Used) -> dict[str, float]:
    """Of each pod; together at most what the node used above idle."""
    found: dict[str, float] = dict.fromkeys(used.pod_ns, 0.0)
    # Idle processors draw half of their maximum, and the rest in proportion to their load.
    above_uj = used.rest_uj * used.busy / (1 + used.busy)
    whole_ns = max(used.busy_ns, float(sum(used.pod_ns.values())), 1.0)
    for uid, ns in used.pod_ns.items():
        found[uid] += above_uj * ns / whole_ns
    idle_uj = used.card_max_mw * IDLE_CARD_SHARE * used.passed_s * 1000
    for card, energy_uj in used.card_uj.items():
        pods = used.holders.get(card, ())
        for uid in pods:
            found[uid] = found.get(uid, 0.0) + max(0.0, energy_uj - idle_uj) / len(pods)
    return found
