"""The energy of each pod above idle, out of processor time and of the cards that it has.

The energy of the node without its cards is shared by processor time. The part of it above idle
follows from the load, as where nothing meters the processors. The energy of a card above its idle
power goes to the pods that have it, in equal parts if they share it in time.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events.bounds import MOST_METERED_PODS
from joulie_bus.metering.meters import Meter

READ_EACH_S = 10.0
PUBLISHED_EACH_S = 60.0
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


class Energy(NamedTuple):
    """What the node and its cards have counted so far, in microjoules."""

    node_uj: int
    card_uj: Mapping[str, int]
    whole: frozenset[Meter]  # that add up to the node


class Devices(NamedTuple):
    """The pods of each card by their uids, and the highest limit of a card; 0: unknown."""

    holders: Mapping[str, Sequence[str]] = {}
    card_max_mw: int = 0
    unmetered: frozenset[str] = frozenset()  # pods with parts of cards that have no meter


class Sample(NamedTuple):
    """What was read at once. Processor time is in nanoseconds, of all processors together."""

    at_s: float
    energy: Energy
    busy_ns: int
    total_ns: int
    pod_ns: Mapping[str, int]


class PodCounters:
    """Counters of energy by the uid of the pod, from the first sample on."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._counted: dict[str, float] = {}
        self._unmetered: frozenset[str] = frozenset()

    def lost(self) -> None:
        """The energy of the node is not known: the time until the next sample is left out."""
        self._last = None

    def observe(self, now: Sample | None, devices: Devices) -> None:
        before, self._last = self._last, now
        self._unmetered = devices.unmetered
        if before is None or now is None or now.total_ns <= before.total_ns:
            return
        if before.energy.whole != now.energy.whole:
            return
        for uid, energy_uj in shares_uj(_used(before, now, devices)).items():
            self._counted[uid] = self._counted.get(uid, 0.0) + energy_uj
        self._counted = {uid: uj for uid, uj in self._counted.items() if uid in now.pod_ns}

    def totals_uj(self) -> dict[str, int]:
        """Of the pods that run and can be metered, a thousand at most."""
        metered = [each for each in self._counted.items() if each[0] not in self._unmetered]
        return {uid: round(uj) for uid, uj in sorted(metered)[:MOST_METERED_PODS]}


def _used(before: Sample, now: Sample, devices: Devices) -> Used:
    card_uj = {
        card: max(0, uj - before.energy.card_uj.get(card, uj))
        for card, uj in now.energy.card_uj.items()
    }
    busy_ns, total_ns = now.busy_ns - before.busy_ns, now.total_ns - before.total_ns
    return Used(
        passed_s=now.at_s - before.at_s,
        rest_uj=max(0.0, now.energy.node_uj - before.energy.node_uj - sum(card_uj.values())),
        busy=min(1.0, max(0.0, busy_ns / total_ns)),
        busy_ns=max(0.0, busy_ns),
        pod_ns={uid: max(0, ns - before.pod_ns.get(uid, 0)) for uid, ns in now.pod_ns.items()},
        card_uj=card_uj,
        card_max_mw=devices.card_max_mw,
        holders=devices.holders,
    )
