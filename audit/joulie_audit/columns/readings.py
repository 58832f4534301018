"""The table of readings, made from messages of telemetry: layout by layout, and the others one by
one."""

from collections.abc import Sequence

import numpy as np

from joulie_audit.columns.arrays import UNKNOWN, Flags, Ints, Names, Numbers, all_known
from joulie_audit.columns.layouts import Decoded, decoded_in_layouts
from joulie_audit.columns.messages import Messages
from joulie_audit.columns.tables import READINGS, TypedColumns
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.events.codec import Sample
from joulie_bus.streams.authority import family_of, measured_on
from joulie_bus.streams.subjects import Family, Stream
from joulie_projections.energy.ledger import NS_PER_MS

_INTEGERS = (
    *("power_mw", "min_mw", "mean_mw", "max_mw"),
    *("counted_from", "energy_uj", "late_ms", "number"),
)
_MAY_BE_UNKNOWN = ("min_mw", "mean_mw", "max_mw", "number")
_TEXTS = ("node", "source", "provider", "life")


class Readings:
    """`plain` are messages whose reading every fold accepts as it is, unless its number was counted
    before."""

    def __init__(self, messages: Messages) -> None:
        count = len(messages.bodies)
        self._messages = messages
        self._are_readings = np.zeros(count, np.bool_)
        self.plain: Flags = np.zeros(count, np.bool_)
        self._integers = {name: np.zeros(count, np.int64) for name in _INTEGERS}
        self._known = {name: np.zeros(count, np.bool_) for name in _MAY_BE_UNKNOWN}
        self._names: dict[str, dict[str, int]] = {name: {} for name in _TEXTS}
        self._which = {name: np.full(count, UNKNOWN, np.int64) for name in _TEXTS}
        self._measured: dict[tuple[str, str], str] = {}  # the node, by subject and life

    def add_in_layouts(self, rows: Ints) -> Ints:
        """Returns the other rows."""
        for found in decoded_in_layouts(self._messages.bodies, rows):
            self._add_layout(found)
        return rows[~self._are_readings[rows]]

    def _add_layout(self, found: Decoded) -> None:
        rows = found.rows
        for name, values in found.integers.items():
            if name in self._integers:
                self._set_integers(name, rows, values)
        self._set_integers("number", rows, found.numbers)
        self._are_readings[rows] = True
        texts, which = found.texts, found.which
        lives, nodes = [each["id"] for each in texts], [each["node"] for each in texts]
        self._set_texts("node", rows, nodes, which)
        self._set_texts("life", rows, lives, which)
        self._set_texts("source", rows, [found.source] * len(texts), which)
        self._set_texts("provider", rows, [each.get("provider", "") for each in texts], which)
        own = np.array([each["node"] == each["key"] for each in texts], np.bool_)
        may = self._are_of_their_subject(rows, nodes, lives, which)
        self.plain[rows] = own[which] & may & found.is_canonical

    def _are_of_their_subject(
        self, rows: Ints, nodes: Sequence[str], lives: Sequence[str], which: Ints
    ) -> Flags:
        subjects = self._messages.subjects
        pairs = which * len(subjects.known) + subjects.which[rows]
        known, places = np.unique(pairs, return_inverse=True)
        texts, subject = np.divmod(known, len(subjects.known))
        may = [
            self._node_of(subjects.known[on], lives[text]) == nodes[text]
            for text, on in zip(list[int](texts.tolist()), list[int](subject.tolist()), strict=True)
        ]
        return np.array(may, np.bool_)[places]

    def add_each(
        self, rows: Sequence[int], samples: Sequence[Sample], fits: Sequence[bool]
    ) -> None:
        """Those that share no layout. One that does not fit has pods or cards beyond the tables."""
        at = np.array(rows, np.int64)
        facts = [sample.data for sample in samples]
        for name in _INTEGERS[:-1]:
            self._set_optional(name, at, [getattr(fact, name) for fact in facts])
        ids = [sample.id.rpartition(":") for sample in samples]
        lives, digits = [life for life, _, _ in ids], [text for _, _, text in ids]
        are_numbers = list(map(_is_number, digits))
        numbers = [
            int(text) if is_number else None
            for text, is_number in zip(digits, are_numbers, strict=True)
        ]
        self._set_optional("number", at, numbers)
        self._are_readings[at] = True
        here = np.arange(len(rows))
        self._set_texts("node", at, [fact.node for fact in facts], here)
        self._set_texts("life", at, lives, here)
        self._set_texts("source", at, [fact.source for fact in facts], here)
        self._set_texts("provider", at, [fact.provider for fact in facts], here)
        subjects = self._messages.subjects
        on = [subjects.known[which] for which in subjects.which[at].tolist()]
        self.plain[at] = [
            fit
            and is_number
            and (text[0] != "0" or text == "0")
            and not sample.data.pod_uj
            and sample.data.node == sample.key == self._node_of(subject, life)
            for fit, is_number, text, sample, subject, life in zip(
                fits, are_numbers, digits, samples, on, lives, strict=True
            )
        ]

    def _set_integers(self, name: str, rows: Ints, values: Ints) -> None:
        self._integers[name][rows] = values
        if name in self._known:
            self._known[name][rows] = True

    def _set_optional(self, name: str, rows: Ints, values: Sequence[int | None]) -> None:
        known = np.array([value is not None for value in values], np.bool_)
        self._set_integers(
            name, rows[known], np.array([each for each in values if each is not None], np.int64)
        )

    def _set_texts(self, name: str, rows: Ints, texts: Sequence[str], which: Ints) -> None:
        known = self._names[name]
        places = [known.setdefault(text, len(known)) for text in texts]
        self._which[name][rows] = np.array(places, np.int64)[which]

    def _node_of(self, subject: str, life: str) -> str:
        """The node that this life of a producer measures on this subject; "" if it may not."""
        known = self._measured.get((subject, life))
        if known is None:
            known = self._measured[subject, life] = _node_measured(subject, life)
        return known

    def columns(self) -> TypedColumns:
        rows, messages = np.flatnonzero(self._are_readings), self._messages
        integers = {name: values[rows] for name, values in self._integers.items()}
        unknown = {name: Numbers(integers[name], self._known[name][rows]) for name in self._known}
        counted = integers["counted_from"] != 0
        texts = {name: Names(list(self._names[name]), self._which[name][rows]) for name in _TEXTS}
        columns: TypedColumns = {
            "position": all_known(messages.positions[rows]),
            "stored_at": all_known(messages.at[rows] // NS_PER_MS),
            "power_mw": all_known(integers["power_mw"]),
            "counted_from": Numbers(integers["counted_from"], counted),
            "energy_uj": Numbers(integers["energy_uj"], counted | (integers["energy_uj"] != 0)),
            "late_ms": all_known(integers["late_ms"]),
            "plain": all_known(self.plain[rows].astype(np.int64)),
            **unknown,
            **texts,
            "provider": _without_empty(texts["provider"]),
        }
        return {name: columns[name] for name in READINGS.kinds}


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= SEQ_DIGITS


def _without_empty(names: Names) -> Names:
    """Null in place of an empty text."""
    if "" not in names.known:
        return names
    return Names(names.known, np.where(names.which == names.known.index(""), UNKNOWN, names.which))


def _node_measured(subject: str, life: str) -> str:
    node, agent = measured_on(subject)
    is_agent = family_of(Stream.TEL, life.partition(":")[0]) is Family.AGENT
    return node if is_agent is bool(agent) and life.startswith(agent) else ""
