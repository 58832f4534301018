"""The state of the ledger with its position, as bytes and back.

Equal states give equal bytes: everything is ordered by name.
"""

import hashlib
import zlib
from collections.abc import Collection, Container, Sequence

import msgspec

from joulie_bus.core.inflating import inflated
from joulie_bus.errors import CountedByAnotherRule, LedgerDamaged
from joulie_bus.streams.records import Record
from joulie_projections.energy.accepted import accepted
from joulie_projections.energy.cards import MeteredCards, NodeCards
from joulie_projections.energy.columns import LogColumns, fold_columns
from joulie_projections.energy.grid import Grid, Rate
from joulie_projections.energy.intervals import LARGEST_BODY, LEVEL, Interval, NodeEnergy
from joulie_projections.energy.ledger import RULE, Ledger
from joulie_projections.energy.meters import COLUMNS
from joulie_projections.energy.pods import Capacity, NodeEntry, PodEntry
from joulie_projections.energy.use import DayOfUse, Uses, decoded, encoded
from joulie_projections.state.rows import Row, apply_rows, encode, tables_of
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

COUNTED = ("producer", "cluster")  # the tables that detect duplicates


class _Node(msgspec.Struct, array_like=True):
    name: str
    present: bool
    plan: str
    capacity: Capacity
    numbers: list[int]  # one per column of the meters
    ended: list[str]  # uids
    zone: str
    usable: bool


class _Saved(msgspec.Struct, array_like=True):
    position: int
    minutes_ms: int
    minutes: list[NodeEnergy]
    hour: list[NodeEnergy]
    nodes: list[_Node]
    pods: list[PodEntry]
    producers: list[tuple[str, str, bytes]]
    currency: str
    grid: list[Rate]
    rates: list[Rate]
    cards: list[NodeCards]
    use_day_ms: int
    uses: bytes
    rule: int
    newest_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Saved).decode


class LedgerState:
    """The ledger, the counters of its producers, and the position that it has reached."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.ledger = Ledger()
        self.counters = ClusterState()

    def fold(self, records: Sequence[Record], set_aside: Container[int]) -> None:
        """Folds the records that follow the position."""
        draft = Draft(self.counters)
        self.ledger.fold(list(accepted(draft, records, self.position, set_aside)))
        draft.commit()
        self.position += len(records)

    def fold_columns(self, part: LogColumns, set_aside: Collection[int]) -> bool:
        """Folds the records that follow the position, in columns. False: fold the records."""
        draft = Draft(self.counters)
        if not fold_columns(self.ledger, draft, part, self.position, set_aside):
            return False
        draft.commit()
        self.position += part.length
        return True

    def take_closed(self) -> list[Interval]:
        closed, self.ledger.closed = self.ledger.closed, []
        return closed

    def take_closed_uses(self) -> list[DayOfUse]:
        return self.ledger.uses.take_closed()

    def packed(self) -> bytes:
        """The state without closed intervals, which have to be taken before."""
        ledger = self.ledger
        saved = _Saved(
            self.position,
            ledger.minutes_ms,
            ledger.minutes,
            ledger.hour,
            [_saved(ledger, ledger.nodes[name]) for name in sorted(ledger.nodes)],
            [ledger.pods[uid] for uid in sorted(ledger.pods)],
            [
                (table, key, encode(state))
                for table in COUNTED
                for key, state in sorted(tables_of(self.counters)[table].items())
            ],
            ledger.grid.currency,
            list(ledger.grid),
            sorted(ledger.rates),
            ledger.cards.packed(),
            ledger.uses.day_ms,
            encoded(ledger.uses.running()),
            RULE,
            ledger.newest_ms,
        )
        return zlib.compress(_encode(saved), LEVEL)


def digest_of(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def unpacked(body: bytes, digest: bytes) -> LedgerState:
    """Raises LedgerDamaged if the bytes do not match the digest, and CountedByAnotherRule."""
    if digest_of(body) != digest:
        raise LedgerDamaged
    try:
        saved = _decode(inflated(body, LARGEST_BODY))
    except zlib.error as error:
        raise LedgerDamaged from error
    if saved.rule != RULE:
        raise CountedByAnotherRule(saved.rule, RULE)
    state = LedgerState(saved.position)
    ledger = state.ledger
    ledger.minutes_ms = saved.minutes_ms
    ledger.minutes, ledger.hour = saved.minutes, saved.hour
    ledger.pods = {pod.uid: pod for pod in saved.pods}
    ledger.grid = Grid(saved.currency)
    for rate in saved.grid:
        ledger.grid.put(rate)
    for node in saved.nodes:
        _restore(ledger, node)
    for pod in saved.pods:
        if not pod.end_ms:
            ledger.nodes[pod.node].pods[pod.uid] = pod
    ledger.rates = set(saved.rates)
    ledger.cards = MeteredCards(saved.cards)
    ledger.newest_ms = saved.newest_ms
    ledger.uses = Uses(saved.use_day_ms, decoded(saved.uses))
    apply_rows(state.counters, [Row(*row) for row in saved.producers])
    return state


def _saved(ledger: Ledger, entry: NodeEntry) -> _Node:
    numbers = [int(ledger.meters.columns[name][entry.row]) for name in COLUMNS]
    ended = sorted(pod.uid for pod in entry.ended)
    node = (entry.name, entry.present, entry.plan, entry.capacity, numbers, ended, entry.zone)
    return _Node(*node, entry.usable)


def _restore(ledger: Ledger, node: _Node) -> None:
    row = ledger.row_of(node.name)
    entry = ledger.nodes[node.name]
    entry.present, entry.plan, entry.capacity = node.present, node.plan, node.capacity
    entry.usable = node.usable
    entry.ended = [ledger.pods[uid] for uid in node.ended]
    ledger.place(entry, node.zone)
    for name, number in zip(COLUMNS, node.numbers, strict=True):
        ledger.meters.columns[name][row] = number
