"""The meters of all nodes in columns: power between two readings becomes energy.

The energy between two readings is the difference of their counters, if both have the same one; else
the mean power that the later one has of that time; else the mean of both powers times the time
between them (the trapezoid rule). It is whole microjoules. Without a counter, a longer time than
`GAP_MS` is a gap: its energy is unknown.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_projections.energy.grid import KINDS, UNKNOWN
from joulie_projections.energy.intervals import DAY_MS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GAP_MS = 60_000  # twelve readings at the default interval of the agent
LONGEST_MS = 31 * DAY_MS  # the part of a gap that an estimate covers; keeps sums within 64 bits
MOST_GUESSED_MW = 10**9  # of a node during a gap, for the same reason; a counter rises no faster
NONE = np.int64(2**40)  # more than any power
# What energy is worth: its cost and carbon, and how much energy has them.
WORTH = ("cost_n", "priced_uj", "co2_ug", "weighed_uj")
OPEN_OWN = tuple(f"open_own_{name}" for name in WORTH)
OPEN_IDLE = tuple(f"open_idle_{name}" for name in WORTH)
SUMS = ("own_uj", "idle_uj", "modelled_uj", "unknown_uj", "unknown_ms", *WORTH)
HOUR_SUMS = tuple(f"hour_{name}" for name in SUMS)  # of the minutes that have ended
COLUMNS = (
    *("last_ms", "last_mw", "modelled", "day", "low_mw", "low_before_mw", "unknown_to_ms"),
    *("pods", "changed", "asleep"),
    *("open_own_uj", "open_idle_uj"),  # not shared out to pods yet
    *SUMS,  # of the running minutes; columns are added at the end only, see `saved`
    *("rated_uj", "open_own_rated_uj", "open_idle_rated_uj"),  # energy of which the worth is known
    *OPEN_OWN,
    *OPEN_IDLE,
    *HOUR_SUMS,
    "known_ms",  # of the running hour
    "awake_from_ms",  # earlier readings do not count as idle power
    *("counted_from", "last_uj"),  # the counter of the last reading; 0: it has none
)
OWN_OPEN, IDLE_OPEN = ("open_own_uj", *OPEN_OWN), ("open_idle_uj", *OPEN_IDLE)
_FIRST = {"last_ms": -1, "day": -1, "low_mw": int(NONE), "low_before_mw": int(NONE)}


class Counts(NamedTuple):
    """What readings hold beside their power; a column each."""

    mean_mw: Ints  # since the reading before; -1: not known
    counted_from: Ints  # when the counter began, in nanoseconds; 0: there is none
    uj: Ints
    late_ms: Ints

    def part(self, places: slice | npt.NDArray[np.intp]) -> "Counts":
        return Counts(*(column[places] for column in self))


class Readings(NamedTuple):
    """Readings in columns, in the order of the log."""

    node: npt.NDArray[np.intp]  # the row of the node
    at_ms: Ints
    mw: Ints
    modelled: Ints  # 1 if a model computed it, 0 if it was measured
    counts: Counts | None = None

    def part(self, places: slice | npt.NDArray[np.intp]) -> "Readings":
        return Readings(
            self.node[places],
            self.at_ms[places],
            self.mw[places],
            self.modelled[places],
            self.counts and self.counts.part(places),
        )

    def as_measured(self) -> "Readings":
        """With the time at which each was made."""
        return self._replace(at_ms=self.at_ms - self.counts.late_ms) if self.counts else self


class Window(NamedTuple):
    """The energy between two readings of a node whose pods changed in between."""

    row: int
    from_ms: int
    to_ms: int
    own_uj: int
    idle_uj: int


class Meters:
    """One row per node; `pods` counts its pods, `changed` marks a change since the last reading."""

    def __init__(self) -> None:
        self.rows = 0
        self._free: list[int] = []
        self.columns: dict[str, Ints] = {}
        for name in COLUMNS:
            self.columns[name] = np.zeros(0, np.int64)
        # Billionths of the currency, and micrograms of carbon, per microjoule.
        self.rates = {kind: np.zeros(0) for kind in KINDS}

    def add(self) -> int:
        """The row of a new node."""
        row = self._free.pop() if self._free else self.rows
        if row == len(self.columns["last_ms"]):
            for name, column in self.columns.items():
                self.columns[name] = np.concatenate([column, np.zeros(row + 64, np.int64)])
            for kind, rates in self.rates.items():
                self.rates[kind] = np.concatenate([rates, np.full(row + 64, UNKNOWN)])
        self.rows = max(self.rows, row + 1)
        for name, column in self.columns.items():
            column[row] = _FIRST.get(name, 0)
        return row

    def drop(self, row: int) -> None:
        self.columns["last_ms"][row] = -1
        self._free.append(row)

    def fold(self, readings: Readings) -> Iterator[Window]:
        """Folds readings; yields the windows that have to be shared by the time of each pod.

        A window is yielded before the next reading of its node is folded, because the caller resets
        `changed`.
        """
        for part in _without_repeats(readings):
            yield from self._advance(part)

    def _advance(self, new: Readings) -> list[Window]:
        """Folds at most one reading per node."""
        new = self._without_former(new)
        rows, columns = new.node, self.columns
        last, power = columns["last_ms"][rows], columns["last_mw"][rows]
        time = new.at_ms - last
        follows = (last >= 0) & (time > 0)
        risen = self._risen(new, np.where(follows, time, 0))
        known = follows & ((time <= GAP_MS) | (risen >= 0))
        low = self._lowered(new)
        span = np.where(known, time, 0)
        energy = np.where(risen >= 0, risen, _by_power(power, new, span))
        changed = columns["changed"][rows] > 0
        least = np.minimum(low, np.maximum(power, new.mw))
        base = np.where(risen >= 0, np.minimum(least, MOST_GUESSED_MW), least) * span
        alone = (columns["pods"][rows] == 0) & ~changed
        idle = np.where(alone, energy, np.minimum(energy, base))
        own = energy - idle
        by_model = np.maximum(columns["modelled"][rows], new.modelled) * energy
        self._add(rows, own, idle, by_model, ~changed)
        columns["known_ms"][rows] += span
        self._note_gaps(new, follows & ~known, last, power)
        self._keep(new, last, known, risen)
        held = changed & known
        if not held.any():
            return []
        parts = (rows[held], last[held], new.at_ms[held], own[held], idle[held])
        return [Window(*each) for each in zip(*(part.tolist() for part in parts), strict=True)]

    def _keep(self, new: Readings, last: Ints, known: Bools, risen: Ints) -> None:
        """Keeps the reading. A counter, or a late reading, takes back time that was counted as
        unknown."""
        rows, columns = new.node, self.columns
        columns["last_ms"][rows] = np.maximum(last, new.at_ms)
        columns["last_mw"][rows] = new.mw
        columns["modelled"][rows] = new.modelled
        if new.counts is None:
            columns["counted_from"][rows] = columns["last_uj"][rows] = 0
            return
        explains = known & ((risen >= 0) | (new.counts.late_ms > 0))
        counted_to = np.minimum(columns["unknown_to_ms"][rows], new.at_ms)
        columns["unknown_ms"][rows] -= np.where(explains, np.maximum(counted_to - last, 0), 0)
        began = new.counts.counted_from
        columns["counted_from"][rows] = began
        columns["last_uj"][rows] = np.where(began != 0, new.counts.uj, 0)

    def _without_former(self, new: Readings) -> Readings:
        """Leaves out readings that were made before one that was folded already. A counter shows
        that even if the broker stored them later."""
        if new.counts is None:
            return new
        last = self.columns["last_ms"][new.node]
        risen = new.counts.uj - self.columns["last_uj"][new.node]
        is_former = (new.at_ms <= last) & ((new.counts.late_ms > 0) | self._continues(new))
        is_former |= (last >= 0) & self._continues(new) & (risen < 0)
        return new.part(np.flatnonzero(~is_former)) if is_former.any() else new

    def _continues(self, new: Readings) -> Bools:
        """Whether the reading has the same counter as the one before."""
        assert new.counts is not None
        began = new.counts.counted_from
        same: Bools = (began != 0) & (began == self.columns["counted_from"][new.node])
        return same

    def _risen(self, new: Readings, time: Ints) -> Ints:
        """How far counters rose in this time; -1 where that is not known."""
        if new.counts is None:
            return np.full(len(new.node), -1)
        risen = new.counts.uj - self.columns["last_uj"][new.node]
        is_known = self._continues(new) & (time > 0) & (time <= LONGEST_MS)
        return np.where(is_known & (risen <= time * MOST_GUESSED_MW), risen, -1)

    def _add(
        self, rows: npt.NDArray[np.intp], own: Ints, idle: Ints, by_model: Ints, unchanged: Bools
    ) -> None:
        columns = self.columns
        columns["own_uj"][rows] += own
        columns["idle_uj"][rows] += idle
        columns["modelled_uj"][rows] += by_model
        columns["open_own_uj"][rows] += own * unchanged
        columns["open_idle_uj"][rows] += idle * unchanged

    def _lowered(self, new: Readings) -> Ints:
        """The lowest power of this day and the day before, which counts as the idle power."""
        rows, columns = new.node, self.columns
        awake = (columns["asleep"][rows] == 0) & (new.at_ms >= columns["awake_from_ms"][rows])
        day, known = new.at_ms // DAY_MS, columns["day"][rows]
        low, before = columns["low_mw"][rows], columns["low_before_mw"][rows]
        is_later = awake & (day > known)
        before = np.where(is_later, np.where(day == known + 1, low, NONE), before)
        low = np.where(is_later, new.mw, np.where(awake, np.minimum(low, new.mw), low))
        columns["day"][rows] = np.where(is_later, day, known)
        columns["low_mw"][rows], columns["low_before_mw"][rows] = low, before
        return np.minimum(low, before)

    def _note_gaps(self, new: Readings, gaps: Bools, last: Ints, power: Ints) -> None:
        if not gaps.any():
            return
        rows, at = new.node[gaps], new.at_ms[gaps]
        time = np.minimum(at - last[gaps], LONGEST_MS)
        columns = self.columns
        mean_mw = np.minimum((power[gaps] + new.mw[gaps]) // 2, MOST_GUESSED_MW)
        columns["unknown_uj"][rows] += mean_mw * time
        counted_to = np.maximum(last[gaps], columns["unknown_to_ms"][rows])
        columns["unknown_ms"][rows] += np.maximum(at - counted_to, 0)

    def note_silence(self, until_ms: int) -> None:
        """Counts the time of nodes without a reading until then as unknown, as far as it was not
        counted before."""
        last, counted = self.columns["last_ms"], self.columns["unknown_to_ms"]
        silent = np.flatnonzero((last >= 0) & (until_ms - last > GAP_MS))
        since = np.maximum(last[silent], counted[silent])
        self.columns["unknown_ms"][silent] += np.maximum(until_ms - since, 0)
        counted[silent] = until_ms

    def rate(self, rows: int | slice) -> None:
        """Adds what the energy is worth that was counted since the last call, at today's rates."""
        if isinstance(rows, int):
            self._rate_row(rows)
            return
        columns = self.columns
        for energy, rated, worth in (
            (columns["own_uj"][rows] + columns["idle_uj"][rows], "rated_uj", WORTH),
            (columns["open_own_uj"][rows], "open_own_rated_uj", OPEN_OWN),
            (columns["open_idle_uj"][rows], "open_idle_rated_uj", OPEN_IDLE),
        ):
            fresh = energy - columns[rated][rows]
            for place, rates in enumerate(self.rates.values()):
                value = fresh * rates[rows]
                is_known = ~np.isnan(value)
                amount = np.rint(np.where(is_known, value, 0.0)).astype(np.int64)
                columns[worth[2 * place]][rows] += amount
                columns[worth[2 * place + 1]][rows] += np.where(is_known, fresh, 0)
            columns[rated][rows] = energy

    def _rate_row(self, row: int) -> None:
        """The same for one row, without the fixed cost of arrays."""
        columns = self.columns
        for parts, rated, worth in (
            (("own_uj", "idle_uj"), "rated_uj", WORTH),
            (("open_own_uj",), "open_own_rated_uj", OPEN_OWN),
            (("open_idle_uj",), "open_idle_rated_uj", OPEN_IDLE),
        ):
            energy_uj = sum(int(columns[name][row]) for name in parts)
            fresh = self.worth_of(row, energy_uj - int(columns[rated][row]))
            for name, amount in zip(worth, fresh, strict=True):
                if amount:
                    columns[name][row] += amount
            columns[rated][row] = energy_uj

    def worth_of(self, row: int, energy_uj: int) -> list[int]:
        """What this energy is worth at today's rates of a node, as in `WORTH`."""
        worth: list[int] = []
        for rates in self.rates.values():
            value = energy_uj * float(rates[row])
            worth += [0, 0] if math.isnan(value) else [round(value), energy_uj]
        return worth

    def end_minutes(self) -> None:
        """Adds the sums of the running minutes to those of the hour."""
        for name, hour in zip(SUMS, HOUR_SUMS, strict=True):
            self.columns[hour] += self.columns[name]
        self.clear((*SUMS, "rated_uj"))

    def clear(self, names: Sequence[str]) -> None:
        for name in names:
            self.columns[name][:] = 0

    def take_open(self, row: int) -> tuple[list[int], list[int]]:
        """The energy that is not shared out yet, of pods and idle, each with its worth."""
        columns = self.columns
        own, idle = columns["open_own_uj"][row], columns["open_idle_uj"][row]
        if not own and not idle:
            return [0], [0]
        if (own, idle) != (columns["open_own_rated_uj"][row], columns["open_idle_rated_uj"][row]):
            self.rate(row)
        taken = self.take(row, OWN_OPEN), self.take(row, IDLE_OPEN)
        columns["open_own_rated_uj"][row] = columns["open_idle_rated_uj"][row] = 0
        return taken

    def take(self, row: int, names: Sequence[str]) -> list[int]:
        """The numbers of a row, which begin at 0 again. `rate` comes first."""
        taken = [int(self.columns[name][row]) for name in names]
        for name in names:
            self.columns[name][row] = 0
        return taken


def _by_power(before_mw: Ints, new: Readings, span: Ints) -> Ints:
    """The energy of these times by the mean power in the reading, else by the trapezoid rule."""
    by_trapezoid = (before_mw + new.mw) * span // 2
    if new.counts is None:
        return by_trapezoid
    mean = new.counts.mean_mw
    return np.where(mean >= 0, mean * span, by_trapezoid)


def _without_repeats(readings: Readings) -> list[Readings]:
    """Parts in which each node occurs at most once; a node's readings stay in order."""
    nodes, count = readings.node, len(readings.node)
    order = np.argsort(nodes, kind="stable")
    sorted_nodes = nodes[order]
    is_first = np.ones(count, np.bool_)
    is_first[1:] = sorted_nodes[1:] != sorted_nodes[:-1]
    if is_first.all():
        return [readings]
    places = np.arange(count)
    rank = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return [readings.part(order[rank == each]) for each in range(int(rank.max()) + 1)]
