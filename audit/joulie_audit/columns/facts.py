"""The typed tables of the facts of a part, made from its messages.

Out: a row for each message that can be decoded and is not quarantined, in the order of the log. A
message that was sent twice has two rows. Where a table has no room for the cards and pods of a
reading, these have no rows, and the ledger folds the reading from its message.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from joulie_audit.columns.tables import (
    CARD_READINGS,
    MOST_ROWS,
    PLANS,
    POD_READINGS,
    PODS,
    READINGS,
    Columns,
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
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.events.codec import Sample
from joulie_bus.events.pods import PodAsk
from joulie_bus.streams.authority import family_of, measured_on
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Family, Stream
from joulie_projections.energy.ledger import NS_PER_MS, counters_of_cards

Row = tuple[Any, ...]
Placed = tuple[int, Record]  # a record at its position
_HERE = "it"
_PLAN = "plan."
_NO_POD_ASK: Row = (None,) * 6


class FactTables(NamedTuple):
    typed: dict[str, Columns]
    plain: list[Placed]  # readings that a ledger folds from the columns
    others: list[Placed]


def fact_tables(placed: Sequence[Placed], set_aside: Collection[int]) -> FactTables:
    making = _Making()
    for position, record in placed:
        making.add(position, record, position in set_aside)
    return making.made()


def rows_of_reading(record: Record) -> int:
    """How many rows of cards and pods it takes; 0 for other messages."""
    sample = codec.open_sample(record.data) if record.stream is Stream.TEL else None
    return 0 if sample is None else len(sample.data.card_mw) + len(sample.data.pod_uj)


class _Making:
    def __init__(self) -> None:
        self._readings = _Readings()
        self._cards: list[Row] = []
        self._pod_readings: list[Row] = []
        self._pods: list[Row] = []
        self._plans: list[Row] = []
        self._plain: list[Placed] = []
        self._others: list[Placed] = []

    def made(self) -> FactTables:
        typed = {
            READINGS.name: self._readings.columns(),
            CARD_READINGS.name: CARD_READINGS.filled(self._cards),
            POD_READINGS.name: POD_READINGS.filled(self._pod_readings),
            PODS.name: PODS.filled(self._pods),
            PLANS.name: PLANS.filled(self._plans),
        }
        return FactTables(typed, self._plain, self._others)

    def add(self, position: int, record: Record, is_aside: bool) -> None:
        is_plain = False
        if is_aside:
            pass
        elif record.stream is Stream.TEL:
            is_plain = self._add_reading(position, record)
        elif record.stream in (Stream.OBS, Stream.PLAN):
            self._add_fact(position, record)
        (self._plain if is_plain else self._others).append((position, record))

    def _add_reading(self, position: int, record: Record) -> bool:
        sample = codec.open_sample(record.data)
        if sample is None:
            return False
        fact, at_ms = sample.data, record.at // NS_PER_MS
        fits = self._has_room_for(fact)
        if fits and fact.card_mw:
            self._cards.extend(_cards(position, at_ms, fact))
        if fits and fact.pod_uj:
            self._pod_readings.extend(
                (position, at_ms, fact.node, pod_uid, energy_uj)
                for pod_uid, energy_uj in fact.pod_uj.items()
            )
        return self._readings.add(position, record, sample, fits=fits)

    def _has_room_for(self, fact: TelemetrySampled) -> bool:
        cards, pods = len(self._cards), len(self._pod_readings)
        return max(cards + len(fact.card_mw), pods + len(fact.pod_uj)) <= MOST_ROWS

    def _add_fact(self, position: int, record: Record) -> None:
        try:
            event = codec.decoded(record.data, _HERE)
        except Undecodable:  # of a later version
            return
        at_ms = record.at // NS_PER_MS
        if (pod := _pod(event)) is not None:
            self._pods.append((position, at_ms, *pod))
        elif event.TYPE.startswith(_PLAN):
            self._plans.append((position, at_ms, *_plan(event)))


class _Readings:
    """Column by column, because nearly all messages are readings."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._at_ms: list[int] = []
        self._facts: list[TelemetrySampled] = []
        self._lives: list[str] = []
        self._numbers: list[int | None] = []
        self._are_plain: list[bool] = []
        self._measured: dict[tuple[str, str], str] = {}  # the node, by subject and life

    def add(self, position: int, record: Record, sample: Sample, *, fits: bool) -> bool:
        """Whether it is plain: every fold accepts it as it is, unless its number was counted
        before."""
        fact = sample.data
        life, _, digits = sample.id.rpartition(":")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= SEQ_DIGITS
        is_plain = (
            fits
            and is_number
            and (digits[0] != "0" or digits == "0")
            and not fact.pod_uj
            and fact.node == sample.key == self._node_of(record.subject, life)
        )
        self._positions.append(position)
        self._at_ms.append(record.at // NS_PER_MS)
        self._facts.append(fact)
        self._lives.append(life)
        self._numbers.append(int(digits) if is_number else None)
        self._are_plain.append(is_plain)
        return is_plain

    def _node_of(self, subject: str, life: str) -> str:
        """The node that this life of a producer measures on this subject; "" if it may not."""
        known = self._measured.get((subject, life))
        if known is None:
            known = self._measured[subject, life] = _node_measured(subject, life)
        return known

    def columns(self) -> Columns:
        facts = self._facts
        values: tuple[list[Any], ...] = (
            self._positions,
            self._at_ms,
            [fact.node for fact in facts],
            [fact.source for fact in facts],
            [fact.provider or None for fact in facts],
            [fact.power_mw for fact in facts],
            [fact.min_mw for fact in facts],
            [fact.mean_mw for fact in facts],
            [fact.max_mw for fact in facts],
            [fact.counted_from or None for fact in facts],
            [fact.energy_uj if fact.counted_from or fact.energy_uj else None for fact in facts],
            [fact.late_ms for fact in facts],
            self._lives,
            self._numbers,
            self._are_plain,
        )
        return dict(zip(READINGS.kinds, values, strict=True))


def _node_measured(subject: str, life: str) -> str:
    node, agent = measured_on(subject)
    is_agent = family_of(Stream.TEL, life.partition(":")[0]) is Family.AGENT
    return node if is_agent is bool(agent) and life.startswith(agent) else ""


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
