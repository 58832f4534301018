"""The typed tables of the facts of a part, made from its messages.

Out: a row for each message that can be decoded and is not quarantined, in the order of the log. A
message that was sent twice has two rows. Where a table has no room for the cards and pods of a
reading, these have no rows, and the ledger folds the reading from its message.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from joulie_audit.columns.arrays import Flags
from joulie_audit.columns.messages import Messages, Placed
from joulie_audit.columns.readings import Readings
from joulie_audit.columns.tables import (
    CARD_READINGS,
    MOST_ROWS,
    PLANS,
    POD_READINGS,
    PODS,
    READINGS,
    TypedColumns,
)
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    CapsSet,
    PlanMade,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    TelemetrySampled,
    codec,
)
from joulie_bus.events.codec import Sample
from joulie_bus.events.pods import PodAsk
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.energy.ledger import NS_PER_MS, counters_of_cards

Row = tuple[Any, ...]
_HERE = "it"
_PLAN = "plan."
_NO_POD_ASK: Row = (None,) * 6


class FactTables(NamedTuple):
    typed: dict[str, TypedColumns]
    plain: Flags  # of each message: whether a ledger folds its reading from the columns

    def split(self, placed: Sequence[Placed]) -> tuple[list[Placed], list[Placed]]:
        """The messages that a ledger folds from the columns, and the others."""
        return list(compress(placed, self.plain)), list(compress(placed, ~self.plain))


def fact_tables(messages: Messages, set_aside: Collection[int]) -> FactTables:
    making = _Making(messages)
    aside = np.isin(messages.positions, list(set_aside))
    making.add_readings(aside)
    making.add_facts(aside)
    return making.made()


def rows_of_reading(record: Record) -> int:
    """How many rows of cards and pods it takes; 0 for other messages."""
    sample = codec.open_sample(record.data) if record.stream is Stream.TEL else None
    return 0 if sample is None else len(sample.data.card_mw) + len(sample.data.pod_uj)


class _Making:
    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._readings = Readings(messages)
        self._cards: list[Row] = []
        self._pod_readings: list[Row] = []
        self._pods: list[Row] = []
        self._plans: list[Row] = []

    def made(self) -> FactTables:
        typed: dict[str, TypedColumns] = {
            READINGS.name: self._readings.columns(),
            CARD_READINGS.name: CARD_READINGS.filled(self._cards),
            POD_READINGS.name: POD_READINGS.filled(self._pod_readings),
            PODS.name: PODS.filled(self._pods),
            PLANS.name: PLANS.filled(self._plans),
        }
        return FactTables(typed, self._readings.plain)

    def add_readings(self, aside: Flags) -> None:
        bodies, rows = self._messages.bodies, self._messages.of_streams(Stream.TEL)
        others = self._readings.add_in_layouts(rows[~aside[rows]])
        opened = [(row, codec.open_sample(bodies[row])) for row in others.tolist()]
        samples = [(row, sample) for row, sample in opened if sample is not None]
        fits = [self._add_parts(row, sample) for row, sample in samples]
        self._readings.add_each([row for row, _ in samples], [each for _, each in samples], fits)

    def _add_parts(self, row: int, sample: Sample) -> bool:
        """The cards and pods of a reading, if the tables have room for them."""
        fact = sample.data
        if not self._has_room_for(fact):
            return False
        if fact.card_mw or fact.pod_uj:
            position, at_ms = self._place(row)
            self._cards.extend(_cards(position, at_ms, fact))
            self._pod_readings.extend(
                (position, at_ms, fact.node, pod_uid, energy_uj)
                for pod_uid, energy_uj in fact.pod_uj.items()
            )
        return True

    def _has_room_for(self, fact: TelemetrySampled) -> bool:
        cards, pods = len(self._cards), len(self._pod_readings)
        return max(cards + len(fact.card_mw), pods + len(fact.pod_uj)) <= MOST_ROWS

    def add_facts(self, aside: Flags) -> None:
        rows = self._messages.of_streams(Stream.OBS, Stream.PLAN)
        for row in rows[~aside[rows]].tolist():
            self._add_fact(row)

    def _add_fact(self, row: int) -> None:
        try:
            event = codec.decoded(self._messages.bodies[row], _HERE)
        except Undecodable:  # of a later version
            return
        if (pod := _pod(event)) is not None:
            self._pods.append((*self._place(row), *pod))
        elif event.TYPE.startswith(_PLAN):
            self._plans.append((*self._place(row), *_plan(event)))

    def _place(self, row: int) -> tuple[int, int]:
        return int(self._messages.positions[row]), int(self._messages.at[row]) // NS_PER_MS


def _cards(position: int, at_ms: int, fact: TelemetrySampled) -> Iterator[Row]:
    counters = counters_of_cards(fact)
    for (card, power_mw), energy_uj in zip(fact.card_mw.items(), counters, strict=True):
        yield position, at_ms, fact.node, card, power_mw, energy_uj if energy_uj >= 0 else None


def _pod(event: AnyEvent) -> Row | None:
    match event:
        case PodPending():
            return _asked("pending", event.pod, None)
        case PodBound():
            return _asked("bound", event.pod, event.node)
        case PodFinished():
            return ("finished", event.uid, None, None, None, *_NO_POD_ASK)
        case PodGone():
            return ("gone", event.uid, None, None, None, *_NO_POD_ASK)
        case _:
            return None


def _asked(what: str, pod: PodAsk, node: str | None) -> Row:
    requests = (pod.cpu_milli, pod.memory_bytes, pod.gpu_milli)
    ties = (pod.team or None, pod.group or None)
    return (what, pod.uid, pod.namespace, pod.name, node, pod.workload, *requests, *ties)


def _plan(event: AnyEvent) -> Row:
    """A field that a kind of step does not have is null."""
    made = event if isinstance(event, PlanMade) else None
    caps = event if isinstance(event, CapsSet) else None
    return (
        event.TYPE.removeprefix(_PLAN),
        getattr(event, "plan", None),
        getattr(event, "node", None),
        getattr(event, "because", "") or None,
        made and made.policy,
        made and made.changes,
        made and made.dry_run,
        getattr(event, "profile", None),
        caps and caps.cpu_cap_pct,
        caps and caps.gpu_cap_pct,
    )
