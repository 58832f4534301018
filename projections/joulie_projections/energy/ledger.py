"""The fold of facts into energy per node, pod and group.

The same facts in the same order give the same bytes, wherever the fold is stopped and continued:
energy is whole microjoules, and times are those at which the broker stored the facts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import assert_never

import numpy as np

from joulie_bus.core.formats import in_force
from joulie_bus.events import (
    CapsSet,
    DevicesAsked,
    DrainingBegun,
    FacilityPolled,
    Fact,
    GpuSeen,
    GridFact,
    GridIntensity,
    GridPriced,
    HardwareDiscovered,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PodsUsed,
    ProfileAssigned,
    SleepOrdered,
    TelemetrySampled,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_projections.energy.cards import CardPower, MeteredCards
from joulie_projections.energy.grid import KINDS, UNKNOWN, Grid, Rate, rate_of
from joulie_projections.energy.intervals import (
    MINUTES_MS,
    Interval,
    NodeEnergy,
    PodEnergy,
    groups_of,
    start_of,
    summed,
)
from joulie_projections.energy.meters import (
    HOUR_SUMS,
    SUMS,
    Counts,
    Ints,
    Meters,
    Readings,
    Window,
)
from joulie_projections.energy.pods import (
    Capacity,
    NodeEntry,
    PodEntry,
    Stay,
    cores_asked,
    discovered_capacity,
    seen_capacity,
    share_out,
    stays_of,
)
from joulie_projections.energy.use import Uses

NS_PER_MS = 1_000_000
ZONE_LABEL = "topology.kubernetes.io/zone"
MEASURED = "kepler"  # the source of readings that are measured; others are modelled
# Of the fold; a ledger and a report name the one by which they were counted.
RULE = int(in_force("ledger"))
ASLEEP, WAKING = 1, 2  # in the column `asleep`
# Its place among readings, the node, and milliwatts and counters in the same order.
CardReading = tuple[int, str, Mapping[str, int], Sequence[int]]
StoredFact = tuple[Fact, int]  # a fact, and when the broker stored it, in nanoseconds


class Ledger:
    """The state of the fold. `closed` collects the intervals that have ended."""

    def __init__(self) -> None:
        self.newest_ms = 0  # time of the newest reading: the energy is complete up to it
        self.meters = Meters()
        self.nodes: dict[str, NodeEntry] = {}
        self.pods: dict[str, PodEntry] = {}
        self.names: dict[int, str] = {}  # of the rows in use
        self.minutes_ms = -1  # start of the running minutes; -1 before the first reading
        self.minutes: list[NodeEnergy] = []  # of nodes that were removed or changed their plan
        self.hour: list[NodeEnergy] = []  # of the minutes of the running hour that have ended
        self.cards = MeteredCards()
        self.grid = Grid()
        self.uses = Uses()
        self.rates: set[Rate] = set()  # that were in force in the running hour
        self._by_zone: dict[str, list[float | None]] = {}
        self.closed: list[Interval] = []

    def fold(self, facts: Iterable[StoredFact]) -> None:
        """Readings wait for a fact about their node, for larger columns: those of other nodes can
        be folded before or after it."""
        readings: list[tuple[TelemetrySampled, int]] = []
        nodes: set[str] = set()
        newest_ms = 0
        for fact, at in facts:
            at_ms = at // NS_PER_MS
            if isinstance(fact, TelemetrySampled):
                readings.append((fact, at_ms))
                nodes.add(fact.node)
                newest_ms = max(newest_ms, at_ms)
                if fact.pod_uj:
                    self._fold_readings(readings)
                    readings.clear()
                    nodes.clear()
                    self._count_pods(fact, at_ms - fact.late_ms)
                continue
            touched = self._touched(fact)
            if readings and (
                touched is None
                or self._begins_minutes(newest_ms)
                or any(name in nodes for name in touched)
            ):
                self._fold_readings(readings)
                readings.clear()
                nodes.clear()
            self._fold_other(fact, at_ms)
        self._fold_readings(readings)

    def fold_with(
        self,
        readings: Readings,
        places: Ints,
        with_cards: Sequence[CardReading],
        others: Sequence[tuple[int, Fact, int]],
    ) -> None:
        """As `fold`: `places` and those of the other facts give the order."""
        folded, known = 0, _KnownReadings(readings)
        uptos = np.searchsorted(places, [place for place, _, _ in others]).tolist()
        for upto, (_, fact, at) in zip(uptos, others, strict=True):
            if upto > folded and self._waits(fact, known, folded, upto):
                self._fold_part(readings, with_cards, folded, upto)
                folded = upto
            self._fold_other(fact, at // NS_PER_MS)
        if folded < len(places):
            self._fold_part(readings, with_cards, folded, len(places))

    def _fold_part(
        self, readings: Readings, with_cards: Sequence[CardReading], first: int, last: int
    ) -> None:
        moved = [(place - first, *each) for place, *each in _within(with_cards, first, last)]
        self.fold_columns(readings.part(slice(first, last)), moved)  # type: ignore[arg-type]

    def is_metered(self, name: str) -> bool:
        """Whether the node stays known until it is gone."""
        node = self.nodes.get(name)
        return node is not None and (
            node.present or bool(self.meters.columns["last_ms"][node.row] >= 0)
        )

    def _waits(self, fact: Fact, readings: "_KnownReadings", first: int, upto: int) -> bool:
        """Whether the fact has to wait for the readings from `first` to before `upto`."""
        touched = self._touched(fact)
        if touched is None or self._begins_minutes(readings.newest_ms(upto)):
            return True
        rows = [self.nodes[name].row for name in touched if name in self.nodes]
        return any(readings.has(row, first, upto) for row in rows)

    def _begins_minutes(self, at_ms: int) -> bool:
        return at_ms >= self.minutes_ms + MINUTES_MS or self.minutes_ms < 0

    def _touched(self, fact: Fact) -> Sequence[str] | None:
        """The nodes whose sums a fact reads or changes; None for all."""
        match fact:
            case PodBound():
                known = self.pods.get(fact.pod.uid)
                return (fact.node,) if known is None else (fact.node, known.node)
            case PodFinished() | PodGone():
                known = self.pods.get(fact.uid)
                return () if known is None else (known.node,)
            case NodeSeen() | HardwareDiscovered() | GpuSeen():
                return (fact.node,)
            case PodPending() | PodsUsed() | FacilityPolled() | NamespaceSeen() | DevicesAsked():
                return ()
            case _:
                return None

    def end(self) -> None:
        """Ends the running intervals, to show them. Nothing can be folded after that."""
        if self.minutes_ms >= 0:
            self._end_minutes(is_end=True)
            self._end_hour()

    # --- readings -----------------------------------------------------------------------------

    def row_of(self, name: str) -> int:
        return self._node(name).row

    def _fold_readings(self, readings: Sequence[tuple[TelemetrySampled, int]]) -> None:
        if not readings:
            return
        rows = [self._node(fact.node).row for fact, _ in readings]
        self.fold_columns(
            Readings(
                np.array(rows, np.intp),
                np.array([at for _, at in readings], np.int64),
                np.array([fact.power_mw for fact, _ in readings], np.int64),
                np.array([fact.source != MEASURED for fact, _ in readings], np.int64),
                _counts_of([fact for fact, _ in readings]),
            ),
            [
                (place, fact.node, fact.card_mw, counters_of_cards(fact))
                for place, (fact, _) in enumerate(readings)
                if fact.card_mw
            ],
        )

    def fold_columns(self, readings: Readings, with_cards: Sequence[CardReading] = ()) -> None:
        """Folds readings minutes by minutes. The energy of a window belongs to the minutes in which
        it ends, and time does not run back."""
        times = np.maximum(np.maximum.accumulate(readings.at_ms), self.minutes_ms)
        starts = times - times % MINUTES_MS
        cuts = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        readings = readings.as_measured()
        self.newest_ms = max(self.newest_ms, int(readings.at_ms.max(initial=0)))
        for first, last in pairwise(cuts):
            self._open_minutes(int(starts[first]))
            for window in self.meters.fold(readings.part(slice(first, last))):
                self._share_window(window)
            for reading in _within(with_cards, first, last):
                self._read_cards(readings, reading)

    def _read_cards(self, readings: Readings, reading: CardReading) -> None:
        place, node, card_mw, card_uj = reading
        known, at_ms = self.nodes.get(node), int(readings.at_ms[place])
        counted_from = int(readings.counts.counted_from[place]) if readings.counts else 0
        self.cards.read(
            node,
            CardPower(at_ms, card_mw, counted_from, card_uj),
            is_awake=self._is_awake(node, at_ms),
            capacity=known.capacity if known else None,
        )

    def _open_minutes(self, start_ms: int) -> None:
        if start_ms == self.minutes_ms:
            return
        if self.minutes_ms >= 0:
            self._end_minutes()
            if start_of("hour", start_ms) != start_of("hour", self.minutes_ms):
                self._end_hour()
        self.minutes_ms = start_ms
        self.grid.drop_before(start_ms)
        self.set_rates()

    def _end_minutes(self, is_end: bool = False) -> None:
        if not is_end:
            self.meters.note_silence(self.minutes_ms + MINUTES_MS)
        self.meters.rate(slice(None))
        rows = _with_banked(self.minutes, self._rows(SUMS))
        self.meters.end_minutes()
        self.hour += self.minutes
        self.minutes = []
        rates = sorted(self.grid.all_in_force(self.minutes_ms))
        self.closed.append(Interval("minutes", self.minutes_ms, rows, grid=rates))

    def _rows(self, names: Sequence[str]) -> list[NodeEnergy]:
        """The sums in these columns, of each node that has any."""
        columns = self.meters.columns
        columns_of_sums = [columns[name][: self.meters.rows].tolist() for name in names]
        return [
            NodeEnergy(self.names[row], self.nodes[self.names[row]].plan, *numbers)
            for row, numbers in enumerate(zip(*columns_of_sums, strict=True))
            if any(numbers)
        ]

    def _end_hour(self) -> None:
        for node in self.nodes.values():
            self._settle(node)
        start_ms = start_of("hour", self.minutes_ms)
        pods = [_energy_of(pod) for pod in self.pods.values() if pod.pods_uj or pod.idle_uj]
        pods.sort(key=_identity)
        rows = _with_banked(self.hour, self._rows(HOUR_SUMS))
        cards = self.cards.end_hour(rows, self._known_times())
        self.meters.clear((*HOUR_SUMS, "known_ms"))
        rates = sorted(self.rates)
        self.closed.append(Interval("hour", start_ms, rows, groups_of(pods), pods, rates, cards))
        self.hour, self.rates = [], set()
        due = {pod.uid for node in self.nodes.values() for pod in node.ended}
        kept = [pod for pod in self.pods.values() if not pod.gone or pod.uid in due]
        self.pods = {pod.uid: _emptied(pod) for pod in kept}

    def _known_times(self) -> dict[str, tuple[Capacity, int]]:
        """Of the nodes with cards: the capacity, and the time of known power in this hour."""
        column = self.meters.columns["known_ms"]
        found = (self.nodes[name] for name in self.cards.nodes if name in self.nodes)
        return {node.name: (node.capacity, int(column[node.row])) for node in found}

    # --- shares -------------------------------------------------------------------------------

    def _settle(self, node: NodeEntry) -> None:
        """Shares out the energy since the pods of the node changed; all of them ran all the time.

        Every change of its pods or its capacity comes after this.
        """
        own, idle = self.meters.take_open(node.row)
        if node.pods and (own[0] or idle[0]):
            stays = [Stay(pod, 1, pod) for pod in node.pods.values()]
            shared = share_out(node.capacity, stays, own, idle, 1)
            self.cards.share(node.name, node.capacity, shared)

    def _count_pods(self, fact: TelemetrySampled, at_ms: int) -> None:
        """The counters of pods, which tell how the energy up to this reading is shared."""
        node = self._node(fact.node)
        for uid, energy_uj in fact.pod_uj.items():
            pod = node.pods.get(uid)
            if pod is not None:
                pod.count(fact.counted_from, at_ms, energy_uj)
        self._settle(node)

    def _share_window(self, window: Window) -> None:
        """Shares out a window in which pods started, ended or were resized, by the time that each
        pod ran."""
        node = self.nodes[self.names[window.row]]
        columns = self.meters.columns
        pods = [*node.pods.values(), *node.ended]
        stays = [each for pod in pods for each in stays_of(pod, window.from_ms, window.to_ms)]
        time = window.to_ms - window.from_ms
        if stays:
            own, idle = (
                [energy, *self.meters.worth_of(window.row, energy)]
                for energy in (window.own_uj, window.idle_uj)
            )
            shared = share_out(node.capacity, stays, own, idle, time)
            self.cards.share(node.name, node.capacity, shared)
        else:  # no pod ran: all of it is idle
            columns["own_uj"][window.row] -= window.own_uj
            columns["idle_uj"][window.row] += window.own_uj
        node.ended = [pod for pod in node.ended if pod.end_ms > window.to_ms]
        is_early = False
        for pod in node.pods.values():
            if pod.earlier:
                pod.shared_until(window.to_ms)
            is_early = is_early or pod.start_ms > window.to_ms or bool(pod.earlier)
        columns["changed"][window.row] = bool(node.ended) or is_early

    # --- rates --------------------------------------------------------------------------------

    def set_rates(self) -> None:
        """The rates of all nodes as of the running minutes."""
        self.rates |= self.grid.all_in_force(self.minutes_ms)
        before = self._by_zone
        self._by_zone = {zone: self._rates_in(zone) for zone in before}
        if self._by_zone == before:
            return
        for node in self.nodes.values():
            self._set_rates_of(node)

    def _set_rates_of(self, node: NodeEntry) -> None:
        if node.zone not in self._by_zone:
            self._by_zone[node.zone] = self._rates_in(node.zone)
        for kind, rate in zip(KINDS, self._by_zone[node.zone], strict=True):
            self.meters.rates[kind][node.row] = UNKNOWN if rate is None else rate

    def _rates_in(self, zone: str) -> list[float | None]:
        found = (self.grid.in_force(kind, zone, self.minutes_ms) for kind in KINDS)
        return [None if rate is None else rate.per_uj for rate in found]

    def _rated(self, fact: GridFact) -> None:
        """Energy that is counted after this fact has the new rate."""
        self.meters.rate(slice(None))
        self.grid.put(rate_of(fact))
        self.set_rates()

    def place(self, node: NodeEntry, zone: str) -> None:
        """Moves a node to a zone."""
        self.meters.rate(node.row)
        node.zone = zone
        self._set_rates_of(node)

    # --- other facts --------------------------------------------------------------------------

    def _fold_other(self, fact: Fact, at_ms: int) -> None:
        """Claims, namespaces and the building have no energy of their own."""
        match fact:
            case GridPriced() | GridIntensity():
                self._rated(fact)
            case PodBound():
                self._bound(fact, at_ms)
            case PodFinished() | PodGone():
                self._finished(fact.uid, at_ms, isinstance(fact, PodGone))
            case NodeSeen() | HardwareDiscovered():
                self._described(fact, at_ms)
            case NodeGone():
                self._node_gone(fact.node)
            case ProfileAssigned() | TransitionCompleted() | DrainingBegun() | CapsSet():
                self._planned(fact.node, fact.plan)
            case SleepOrdered() | WakeOrdered():
                self._planned(fact.node, fact.plan)
                self._power_ordered(fact, at_ms)
            case _:
                self._fold_rest(fact, at_ms)

    def _fold_rest(self, fact: Fact, at_ms: int) -> None:
        if isinstance(fact, PodsUsed):
            self.uses.fold(fact, at_ms, self.pods)
        else:
            self.cards.fold(fact)

    def _node(self, name: str) -> NodeEntry:
        known = self.nodes.get(name)
        if known is None:
            known = self.nodes[name] = NodeEntry(name, self.meters.add())
            self.names[known.row] = name
            self.place(known, "")
        return known

    def _bound(self, fact: PodBound, at_ms: int) -> None:
        known = self.pods.get(fact.pod.uid)
        if known is not None and not known.gone:
            self._seen_again(known, fact, at_ms)
            return
        node = self._node(fact.node)
        self._settle(node)
        pod = PodEntry.of(fact.pod, fact.node, at_ms)
        if known is not None:  # the same uid again within an hour
            pod.pods_uj, pod.idle_uj = known.pods_uj, known.idle_uj
            former = self._node(known.node)
            former.ended = [ended for ended in former.ended if ended is not known]
        self.pods[pod.uid] = node.pods[pod.uid] = pod
        self._mark_changed(node)

    def _seen_again(self, known: PodEntry, fact: PodBound, at_ms: int) -> None:
        """Which devices a pod holds may be known later than its node: then they count from the
        newest reading on. A pod that is resized counts as it was up to this time."""
        if known.end_ms or known.node != fact.node:
            return
        asked = fact.pod
        held = known.gpu_milli, known.cards
        found = (asked.gpu_milli, asked.gpu.given) if asked.devices.claims else held
        cpu_milli = cores_asked(asked, known.workload)
        if (*found, cpu_milli) == (*held, known.cpu_milli):
            return
        node = self._node(known.node)
        self._settle(node)
        known.gpu_milli, known.cards = found
        if cpu_milli != known.cpu_milli:
            known.resize(cpu_milli, at_ms)
        self._mark_changed(node)

    def _finished(self, uid: str, at_ms: int, is_gone: bool) -> None:
        pod = self.pods.get(uid)
        if pod is None:
            return
        pod.gone = pod.gone or is_gone
        if pod.end_ms:
            return
        node = self._node(pod.node)
        self._settle(node)
        pod.end_ms = max(at_ms, 1)
        del node.pods[uid]
        node.ended.append(pod)
        self._mark_changed(node)
        self._drop_if_unused(node)

    def _mark_changed(self, node: NodeEntry) -> None:
        self.meters.columns["pods"][node.row] = len(node.pods)
        self.meters.columns["changed"][node.row] = 1

    def _described(self, fact: NodeSeen | HardwareDiscovered, at_ms: int) -> None:
        node = self._node(fact.node)
        match fact:
            case NodeSeen():
                capacity = seen_capacity(node.capacity, fact)
                node.present = True
                self._seen_usable(node, fact.ready and fact.schedulable, at_ms)
                if (zone := fact.labels.get(ZONE_LABEL, "")) != node.zone:
                    self.place(node, zone)
            case HardwareDiscovered():
                capacity = discovered_capacity(node.capacity, fact)
            case _:
                assert_never(fact)
        if capacity != node.capacity:
            self._settle(node)
            node.capacity = capacity

    def _node_gone(self, name: str) -> None:
        """Ends the readings of a node. While it has pods, it stays: it may be recreated by name."""
        node = self.nodes.get(name)
        if node is None:
            return
        self._settle(node)
        self.meters.columns["last_ms"][node.row] = -1
        node.present = node.usable = False
        if self.meters.columns["asleep"][node.row]:
            self.meters.columns["asleep"][node.row] = WAKING  # its order to sleep ends with it
        self._drop_if_unused(node)

    def _drop_if_unused(self, node: NodeEntry) -> None:
        if node.present or node.pods or self.meters.columns["last_ms"][node.row] >= 0:
            return
        self._bank(node)
        self.cards.left(node.name, node.capacity, self.meters.take(node.row, ("known_ms",))[0])
        self.meters.drop(node.row)
        del self.nodes[node.name], self.names[node.row]

    def _bank(self, node: NodeEntry) -> None:
        """Moves the sums of a node in the running minutes and hour to rows of their own."""
        self.meters.rate(node.row)
        for names, rows in ((SUMS, self.minutes), (HOUR_SUMS, self.hour)):
            numbers = self.meters.take(node.row, names)
            if any(numbers):
                rows.append(NodeEnergy(node.name, node.plan, *numbers))
        self.meters.columns["rated_uj"][node.row] = 0

    # --- sleep --------------------------------------------------------------------------------

    def _power_ordered(self, fact: SleepOrdered | WakeOrdered, at_ms: int) -> None:
        """A node that is still in use when it is woken has not fallen asleep."""
        node, state = self._node(fact.node), ASLEEP
        if isinstance(fact, WakeOrdered):
            state = 0 if node.usable else WAKING
        self._set_asleep(node, state, at_ms)

    def _seen_usable(self, node: NodeEntry, usable: bool, at_ms: int) -> None:
        node.usable = usable
        if usable and self.meters.columns["asleep"][node.row] == WAKING:
            self._set_asleep(node, 0, at_ms)

    def _set_asleep(self, node: NodeEntry, state: int, at_ms: int) -> None:
        """Streams are read in turn, so a reading from before may be folded after this."""
        columns = self.meters.columns
        if columns["asleep"][node.row] and not state:
            columns["awake_from_ms"][node.row] = at_ms
        columns["asleep"][node.row] = state

    def _is_awake(self, name: str, at_ms: int) -> bool:
        """Whether a reading at this time may be of idle power."""
        if name not in self.nodes:
            return True
        columns, row = self.meters.columns, self.nodes[name].row
        return bool(columns["asleep"][row] == 0 and at_ms >= columns["awake_from_ms"][row])

    def _planned(self, name: str, plan: str) -> None:
        node = self._node(name)
        if plan != node.plan:
            self._bank(node)
            node.plan = plan


class _KnownReadings:
    """Finds the readings of a node in a part of the log."""

    def __init__(self, readings: Readings) -> None:
        self._order = np.argsort(readings.node, kind="stable")
        self._nodes = readings.node[self._order]
        self._newest_ms = np.maximum.accumulate(readings.at_ms)

    def newest_ms(self, upto: int) -> int:
        return int(self._newest_ms[upto - 1])

    def has(self, row: int, first: int, upto: int) -> bool:
        """Whether there is one from `first` to before `upto`."""
        begin, end = np.searchsorted(self._nodes, (row, row + 1))
        at = begin + np.searchsorted(self._order[begin:end], first)
        return bool(at < end and self._order[at] < upto)


def counters_of_cards(fact: TelemetrySampled) -> Sequence[int]:
    """In the order of the cards; -1 for each if they are not counted."""
    is_counted = fact.counted_from and len(fact.card_uj) == len(fact.card_mw)
    return fact.card_uj if is_counted else [-1] * len(fact.card_mw)


def _counts_of(facts: Sequence[TelemetrySampled]) -> Counts | None:
    """None if no reading has more than its power, as in logs of versions before 0.3.0."""
    if not any(fact.mean_mw is not None or fact.counted_from or fact.late_ms for fact in facts):
        return None
    return Counts(
        np.array([-1 if fact.mean_mw is None else fact.mean_mw for fact in facts], np.int64),
        np.array([fact.counted_from for fact in facts], np.int64),
        np.array([fact.energy_uj for fact in facts], np.int64),
        np.array([fact.late_ms for fact in facts], np.int64),
    )


def _within(with_cards: Sequence[CardReading], first: int, last: int) -> Sequence[CardReading]:
    """Those of the readings from `first` to before `last`; they are in order."""
    begin = bisect_left(with_cards, first, key=_place_among)
    return with_cards[begin : bisect_left(with_cards, last, key=_place_among)]


def _place_among(reading: CardReading) -> int:
    return reading[0]


def _with_banked(banked: Sequence[NodeEnergy], rows: list[NodeEnergy]) -> list[NodeEnergy]:
    """Rows of a node and its plan, ordered by both. Sums only where there are rows to add."""
    return summed([*banked, *rows]) if banked else sorted(rows, key=_place)


def _place(row: NodeEnergy) -> tuple[str, str]:
    return row.node, row.plan


def _energy_of(pod: PodEntry) -> PodEnergy:
    return PodEnergy(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.workload,
        pod.node,
        *(pod.pods_uj, pod.idle_uj),
        *pod.worth,
    )


def _identity(pod: PodEnergy) -> tuple[str, str]:
    return pod.uid, pod.node


def _emptied(pod: PodEntry) -> PodEntry:
    pod.pods_uj = pod.idle_uj = 0
    pod.worth = []
    return pod
