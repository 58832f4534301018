"""Readings of a part of the log in columns, folded without decoding their messages.

The result is the same as from the messages. Where that is not certain (a number that is missing or
repeated, a restarted producer, a node that is new or gone), nothing is folded, and the caller
folds the messages.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import Fact, NodeGone, TelemetrySampled
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.energy.accepted import accepted_other, read_other
from joulie_projections.energy.ledger import CardReading, Ledger
from joulie_projections.energy.meters import Counts, Readings
from joulie_projections.fold.producers import TelemetryCounter
from joulie_projections.state.state_changes import Draft

Ints = npt.NDArray[np.int64]


class ReadingColumns(NamedTuple):
    """One row per reading, in the order of the log."""

    nodes: Sequence[str]
    lives: Sequence[str]  # producer:boot
    place: Ints  # of the record in the part
    node: Ints  # index of `nodes`
    at_ms: Ints
    mw: Ints
    modelled: Ints  # 1 if a model computed it
    life: Ints  # index of `lives`
    seq: Ints  # its number
    cards: Sequence[str]  # uuids
    card_of: Ints  # the reading, one row per card that it has
    card: Ints  # index of `cards`
    card_mw: Ints
    # In readings of versions before 0.3.0, these are 0 and -1.
    mean_mw: Ints  # -1: not known
    counted_from: Ints
    uj: Ints
    late_ms: Ints
    card_uj: Ints

    def with_cards(self) -> list[CardReading]:
        found: list[CardReading] = []
        parts = (self.card_of, self.card, self.card_mw, self.card_uj)
        columns: list[list[int]] = [c.tolist() for c in parts]
        powers: dict[int, dict[str, int]] = {}
        energies: dict[int, list[int]] = {}
        for reading, card, mw, uj in zip(*columns, strict=True):
            powers.setdefault(reading, {})[self.cards[int(card)]] = mw
            energies.setdefault(reading, []).append(uj)
        for reading, power in powers.items():
            node = self.nodes[int(self.node[reading])]
            found.append((reading, node, power, energies[reading]))
        return found


class LogColumns(NamedTuple):
    readings: ReadingColumns
    others: Sequence[tuple[int, Record]]  # each with its place in the part
    length: int  # in records


class _Counted(NamedTuple):
    """A message with a number among those of the readings."""

    life: str
    number: int
    fact: Fact


def fold_columns(
    ledger: Ledger, draft: Draft, part: LogColumns, position: int, set_aside: Collection[int]
) -> bool:
    """`position` is that before the part. Returns False, without a change, if the messages have to
    be folded instead."""
    counter = TelemetryCounter(draft)
    columns, counted = part.readings, _counted_in(part, position, set_aside)
    if counted is None or not _is_plain(ledger, part, position, set_aside):
        return False
    highest = _last_numbers(counter, columns, counted)
    replacing = {each.life for each in counted.values() if each.fact.REPLACES}
    if highest is None or not all(map(counter.is_whole, replacing)):
        return False
    facts = _facts_of(draft, part, position, set_aside, counted)
    if any(isinstance(fact, NodeGone) for _, fact, _ in facts):
        return False
    rows = np.array([ledger.row_of(name) for name in columns.nodes], np.intp)
    readings = Readings(
        rows[columns.node] if len(columns.node) else columns.node.astype(np.intp),
        columns.at_ms,
        columns.mw,
        columns.modelled,
        Counts(columns.mean_mw, columns.counted_from, columns.uj, columns.late_ms),
    )
    ledger.fold_with(readings, columns.place, columns.with_cards(), facts)
    counter.continue_to(highest)
    counter.flush()
    return True


def _is_plain(ledger: Ledger, part: LogColumns, position: int, set_aside: Collection[int]) -> bool:
    places = part.readings.place + position + 1
    if set_aside and np.isin(places, list(set_aside)).any():
        return False
    return all(map(ledger.is_metered, part.readings.nodes))


def _counted_in(
    part: LogColumns, position: int, set_aside: Collection[int]
) -> Mapping[int, _Counted] | None:
    """By place, the messages of telemetry that are no readings, such as `pods.used`; None if one is
    a reading, or cannot be read."""
    found: dict[int, _Counted] = {}
    for place, record in part.others:
        if record.stream is not Stream.TEL or position + 1 + place in set_aside:
            continue
        read = read_other(record)
        if read is None or isinstance(read[0], TelemetrySampled):
            return None
        fact, origin = read
        found[place] = _Counted(f"{origin.producer}:{origin.boot}", origin.seq, fact)
    return found


def _last_numbers(
    counter: TelemetryCounter, columns: ReadingColumns, counted: Mapping[int, _Counted]
) -> dict[str, int] | None:
    """The highest number of each producer, if each counts on by one from the number that was folded
    last."""
    lives = [*dict.fromkeys((*columns.lives, *(each.life for each in counted.values())))]
    which = {life: at for at, life in enumerate(lives)}
    rows = [(place, which[each.life], each.number) for place, each in counted.items()]
    others = np.array(rows, np.int64).reshape(-1, 3).T
    pairs = zip((columns.place, columns.life, columns.seq), others, strict=True)
    place, life, seq = (np.concatenate(pair) for pair in pairs)
    order = np.lexsort((place, life))
    life, seq = life[order], seq[order]
    is_first = np.ones(len(life), np.bool_)
    is_first[1:] = life[1:] != life[:-1]
    if not np.all(is_first[1:] | (np.diff(seq) == 1)):
        return None
    names = [lives[int(each)] for each in life[is_first]]
    firsts: list[int] = seq[is_first].tolist()
    lasts: list[int] = seq[np.roll(is_first, -1)].tolist()
    if any(counter.highest(name) != at - 1 for name, at in zip(names, firsts, strict=True)):
        return None
    return dict(zip(names, lasts, strict=True))


def _facts_of(
    draft: Draft,
    part: LogColumns,
    position: int,
    set_aside: Collection[int],
    counted: Mapping[int, _Counted],
) -> list[tuple[int, Fact, int]]:
    """The place, the fact and its time."""
    found: list[tuple[int, Fact, int]] = []
    for place, record in part.others:
        if position + 1 + place in set_aside:
            continue
        known = counted.get(place)
        fact = accepted_other(draft, record) if known is None else known.fact
        if fact is not None:
            found.append((place, fact, record.at))
    return found
