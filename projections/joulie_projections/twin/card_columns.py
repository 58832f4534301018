"""All cards as columns: one row per card, one immutable value per position.

The row of a card carries no meaning: results are computed from these columns by integer sums and by
keys that do not depend on the order, so that all replicas and replays agree.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_projections.hardware import models
from joulie_projections.state.cards import (
    CardState,
    device_pods,
    free_mb,
    is_idle,
    is_usable,
    used_mb,
)
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.kept import KeptDict, KeptList

NO_LINK = 0  # for a card without links, and for rows without a card
NO_NODE = 0  # for a card that has not been seen, or on an unknown node

_COLUMNS: dict[str, type] = {
    "node": np.int64,  # its row in the twins' columns, or NO_NODE
    "model": np.int64,  # number in `NameNumbers.models`
    "bundle": np.int64,  # number of the node and model
    "link": np.int64,  # number of the group of linked cards, or NO_LINK
    "total_mb": np.int64,
    "used_mb": np.int64,  # observed or claimed
    "free_mb": np.int64,
    "healthy": np.bool_,
    "by_dra": np.bool_,  # kube-scheduler gives it out
    "idle": np.bool_,  # no owner and no claims
}
_USE = ("used_mb", "free_mb", "idle")
Columns = dict[str, npt.NDArray[Any]]
Holders = KeptDict[tuple[int, ...]]


class NameNumbers:
    """Assigns numbers to names. Numbers are only added, so all positions share them."""

    def __init__(self) -> None:
        self.models: dict[str, int] = {}
        self.bundles: dict[tuple[str, str], int] = {}
        self.links: dict[tuple[str, str, str], int] = {}

    def model(self, card: CardState) -> int:
        return self.models.setdefault(card.model, len(self.models))

    def bundle(self, card: CardState) -> int:
        """By normalized model name."""
        model = models.card_name(card.model).text
        return self.bundles.setdefault((card.node, model), len(self.bundles))

    def link(self, card: CardState) -> int:
        if not card.nvlink_group:
            return NO_LINK
        key = (card.node, card.model, card.nvlink_group)
        return self.links.setdefault(key, len(self.links) + 1)


class CardRows(NamedTuple):
    """The mapping between cards and rows."""

    rows: dict[str, int]  # by the card's uuid
    uuids: list[str]
    states: KeptList[CardState | None]


class CardsByNode:
    """The rows of each node's cards; sorted on first use."""

    def __init__(self, column: Ints) -> None:
        self.column = column  # the node of each card
        self._order: Ints | None = None
        self._sorted: Ints = column

    def rows_of(self, nodes: Ints) -> Ints:
        """The rows of the cards on these nodes, by node and then by row."""
        return np.concatenate(self.parts_of(nodes)) if len(nodes) else np.zeros(0, np.int64)

    def parts_of(self, nodes: Ints) -> list[Ints]:
        """The rows of the cards on each of these nodes."""
        if self._order is None:
            order = np.argsort(self.column, kind="stable")
            self._order, self._sorted = order, self.column[order]
        first = self._sorted.searchsorted(nodes, "left").tolist()
        last = self._sorted.searchsorted(nodes, "right").tolist()
        return [self._order[a:b] for a, b in zip(first, last, strict=True)]


class Taken(NamedTuple):
    """How cards differ from others: readers compute only that part again."""

    before: "Cards"
    rows: Ints  # of the cards that are not free any more
    nodes: Ints


class Cards:
    """Immutable. A row without a card is all zeros."""

    def __init__(
        self,
        places: CardRows,
        columns: Columns,
        numbers: NameNumbers,
        holders: Holders,
        twin_columns_rows: Mapping[str, int],
    ) -> None:
        self.rows, self.uuids, self.states = places
        self.columns = columns
        self.numbers = numbers
        self.holders = holders  # by pod uid: the rows of cards that it owns or has claims on
        self.memo: dict[object, object] = {}  # what readers compute once for these cards
        # The same while no card is added, removed or replaced; it may be claimed.
        self.fixed_memo: dict[object, object] = {}
        self.taken: Taken | None = None
        self._twin_columns_rows = twin_columns_rows
        self._hosts = CardsByNode(columns["node"])

    @classmethod
    def empty(cls) -> "Cards":
        columns: Columns = {name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()}
        return cls(CardRows({}, [], KeptList()), columns, NameNumbers(), Holders(), {})

    @classmethod
    def of(cls, cards: Mapping[str, CardState], twin_columns_rows: Mapping[str, int]) -> "Cards":
        return cls.empty().following(cards, twin_columns_rows)

    def __len__(self) -> int:
        return len(self.rows)

    def ints(self, name: str) -> Ints:
        return self.columns[name]

    def bools(self, name: str) -> Bools:
        return self.columns[name]

    def held_by(self, uids: Iterable[str]) -> list[int]:
        return [row for uid in uids for row in self.holders.get(uid, ())]

    def nodes_of(self, uids: Iterable[str]) -> Ints:
        """The rows of the nodes on which these pods hold cards."""
        nodes = {self.columns["node"].item(at) for at in self.held_by(uids)} - {NO_NODE}
        return np.array(sorted(nodes), np.int64)

    def on(self, nodes: Ints, gone: Iterable[str] = ()) -> "Cards":
        """Only the cards on these nodes, as if the pods in `gone` and their claims were deleted."""
        selected, absent = self._hosts.rows_of(nodes), frozenset(gone)
        columns = {name: column[selected] for name, column in self.columns.items()}
        rows: list[int] = selected.tolist()
        states = KeptList(self.states[row] for row in rows)
        places = CardRows({}, [self.uuids[row] for row in rows], states)
        held = set(self.held_by(absent))
        for at, (row, state) in enumerate(zip(rows, places.states, strict=True)):
            if row in held and state is not None:
                _write_use(columns, at, state, absent)
        return Cards(places, columns, self.numbers, Holders(), self._twin_columns_rows)

    def taking(self, wanted: Mapping[int, int]) -> "Cards":
        """As if so many free devices of each of these nodes were allocated."""
        nodes = np.array(sorted(wanted), np.int64)
        if not (taken := self._free_devices(nodes, wanted)):
            return self
        at, columns = np.array(taken, np.int64), dict(self.columns)
        values = {"used_mb": columns["total_mb"][at], "free_mb": 0, "idle": False}
        for name in _USE:
            columns[name] = columns[name].copy()
            columns[name][at] = values[name]
        places = CardRows(self.rows, self.uuids, self.states)
        found = Cards(places, columns, self.numbers, self.holders, self._twin_columns_rows)
        found.taken = Taken(self, at, nodes)
        return found._after(self)

    def _free_devices(self, nodes: Ints, wanted: Mapping[int, int]) -> list[int]:
        """Rows of cards; which of them, names alone decide."""
        free = self._free_by_dra()
        found = list[int]()
        for node, rows in zip(nodes.tolist(), self._hosts.parts_of(nodes), strict=True):
            left = rows[free[rows]].tolist()
            found += sorted(left, key=self.uuids.__getitem__)[: wanted[node]]
        return found

    def _free_by_dra(self) -> Bools:
        """Computed once for these cards: each answer about pods in flight takes of them."""
        kept = self.memo.get("free by DRA")
        if isinstance(kept, np.ndarray):
            return kept
        columns = self.columns
        free: Bools = columns["by_dra"] & columns["idle"] & columns["healthy"]
        self.memo["free by DRA"] = free
        return free

    def following(
        self, changes: Mapping[str, CardState | None], twin_columns_rows: Mapping[str, int]
    ) -> "Cards":
        """Updated columns: with these cards changed, and these rows of nodes."""
        if not changes and twin_columns_rows is self._twin_columns_rows:
            return self
        if not self.states:  # start with new numbers
            self = Cards.empty()
        places = self._rows_after(changes)
        rows, _, states = places
        columns = dict(self.columns)
        # Most changes are claims; the other columns are then shared.
        only_use_changes = all(self._is_same(uuid, state) for uuid, state in changes.items())
        for name in _USE if only_use_changes else _COLUMNS:
            columns[name] = _grown(columns[name], len(states))
        for uuid in changes:
            at = rows.get(uuid, self.rows.get(uuid))
            if at is None:
                continue
            if only_use_changes and (state := states[at]) is not None:
                _write_use(columns, at, state, frozenset())
            else:
                self._write(columns, at, states[at], twin_columns_rows)
        if twin_columns_rows is not self._twin_columns_rows:
            hosts = (twin_columns_rows.get(state.node, 0) if state else 0 for state in states)
            columns["node"] = np.fromiter(hosts, np.int64, len(states))
        holders = self._holders_after(changes, rows)
        return Cards(places, columns, self.numbers, holders, twin_columns_rows)._after(self)

    def _after(self, before: "Cards") -> "Cards":
        """Keeps the sorted rows, and results of readers, while only the use of cards changes."""
        if self.columns["node"] is before.columns["node"]:
            self._hosts, self.fixed_memo = before._hosts, before.fixed_memo
        return self

    def _is_same(self, uuid: str, state: CardState | None) -> bool:
        at = self.rows.get(uuid)
        before = None if at is None else self.states[at]
        return before is not None and state is not None and _fixed(before) == _fixed(state)

    def _rows_after(self, changes: Mapping[str, CardState | None]) -> CardRows:
        """The rows of cards, which are the same unless cards are added or removed."""
        if any((uuid in self.rows) != (state is not None) for uuid, state in changes.items()):
            return self._rows_assigned(changes)
        changed = {self.rows[uuid]: state for uuid, state in changes.items() if state is not None}
        return CardRows(self.rows, self.uuids, self.states.following(changed))

    def _rows_assigned(self, changes: Mapping[str, CardState | None]) -> CardRows:
        """Assigns rows: a new card takes a free row or the next one."""
        rows, uuids, states = dict(self.rows), list(self.uuids), list(self.states)
        for uuid, state in changes.items():
            if state is None and uuid in rows:
                states[rows.pop(uuid)] = None
        free = (at for at, state in enumerate(states) if state is None)  # lazy
        for uuid, state in changes.items():
            if state is None:
                continue
            at = rows.get(uuid)
            if at is None:
                at = rows[uuid] = next(free, len(states))
                if at == len(states):
                    states.append(state)
                    uuids.append(uuid)
                uuids[at] = uuid
            states[at] = state
        return CardRows(rows, uuids, KeptList(states))

    def _write(
        self, columns: Columns, at: int, state: CardState | None, rows: Mapping[str, int]
    ) -> None:
        if state is None:
            for column in columns.values():
                column[at] = 0
            return
        columns["node"][at] = rows.get(state.node, 0)
        columns["model"][at] = self.numbers.model(state)
        columns["bundle"][at] = self.numbers.bundle(state)
        columns["link"][at] = self.numbers.link(state)
        columns["total_mb"][at] = state.total_mb
        columns["healthy"][at] = is_usable(state)
        columns["by_dra"][at] = state.device is not None
        _write_use(columns, at, state, frozenset())

    def _holders_after(
        self, changes: Mapping[str, CardState | None], rows: Mapping[str, int]
    ) -> Holders:
        found = dict[str, tuple[int, ...] | None]()
        for uuid in changes:
            at = self.rows.get(uuid)
            state = None if at is None else self.states[at]
            for uid in () if state is None else _uids(state):
                before = found.get(uid) or self.holders[uid]
                found[uid] = tuple(row for row in before if row != at)
        for uuid, state in changes.items():
            for uid in () if state is None else _uids(state):
                others = found[uid] if uid in found else self.holders.get(uid)
                found[uid] = (*(others or ()), rows[uuid])
        return self.holders.following({uid: after or None for uid, after in found.items()})


def _fixed(card: CardState) -> tuple[object, ...]:
    by_dra, usable = card.device is not None, is_usable(card)
    return card.node, card.model, card.nvlink_group, card.total_mb, usable, by_dra


def _uids(card: CardState) -> list[str]:
    return sorted({*card.claims, *([card.owner] if card.owner else []), *device_pods(card)})


def _write_use(columns: Columns, at: int, state: CardState, gone: frozenset[str]) -> None:
    columns["used_mb"][at] = used_mb(state, gone)
    columns["free_mb"][at] = free_mb(state, gone)
    columns["idle"][at] = is_idle(state, gone)


def _grown(column: npt.NDArray[Any], height: int) -> npt.NDArray[Any]:
    grown = np.zeros(max(height, len(column)), column.dtype)
    grown[: len(column)] = column
    return grown
