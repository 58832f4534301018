"""The energy of cards, as a part of the energy of their nodes.

Measured where readings have the power of the card, else modelled: the part of the energy of its
pods that they ask of cards, and a share of the idle energy of the node by rated power. All cards
together never have more than their node, above idle and idle.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.events import Fact, GpuGone, GpuSeen
from joulie_projections.energy.intervals import DAY_MS, CardEnergy, NodeEnergy
from joulie_projections.energy.meters import GAP_MS, MOST_GUESSED_MW, NONE
from joulie_projections.energy.pods import Capacity, Stay, asked_power
from joulie_projections.hardware.guesses import guessed_cpu_max_w, guessed_gpu_max_w

# The idle power of a card, and of the processors of a node with all that is not a card, as parts of
# their rated power: AcmeTrace measured 63 to 70 W of 400 W on an A100, and half on CPU servers.
IDLE_CARD_PERMILLE, IDLE_REST_PERMILLE = 100, 500
# At most this part of its rated power, a card does no work: see `idle_holders`.
QUIET_PERMILLE = 200
UNSEEN = int(NONE)


class Counter(NamedTuple):
    """A counter of energy, and when it began; 0: there is none."""

    began: int = 0
    uj: int = 0


class CardPower(NamedTuple):
    """What a reading holds of the cards of a node."""

    at_ms: int
    mw: Mapping[str, int]
    counted_from: int = 0
    uj: Sequence[int] = ()  # in the order of `mw`; -1: it is not counted

    def each(self) -> Iterator[tuple[str, int, Counter]]:
        for (uuid, mw), uj in zip(self.mw.items(), self.uj or [-1] * len(self.mw), strict=True):
            yield uuid, mw, Counter() if uj < 0 else Counter(self.counted_from, uj)


class CardMeter(msgspec.Struct, array_like=True):
    """One card; the energy is that of the running hour."""

    owner: str = ""  # uid of the pod that has or had it
    is_seen: bool = False  # a fact names it, not readings alone
    last_ms: int = -1
    last_mw: int = 0
    day: int = -1
    low_mw: int = UNSEEN
    low_before_mw: int = UNSEEN
    measured_uj: int = 0
    base_uj: int = 0  # the part of it up to its lowest power
    measured_ms: int = 0
    asked_uj: int = 0  # by the model, above idle
    quiet_ms: int = 0  # the first of its readings in a row at the power of an idle process; 0: none
    counted_from: int = 0
    last_uj: int = 0

    def read(
        self, at_ms: int, mw: int, counter: Counter, *, is_awake: bool, quiet_mw: int = 0
    ) -> None:
        """As `Meters`: counters, the trapezoid rule, gaps, and the lowest power of two days."""
        time_ms = at_ms - self.last_ms
        risen_uj = self._risen_uj(time_ms, counter)
        if risen_uj is not None and (risen_uj < 0 or time_ms <= 0):
            return  # a former reading, which comes late
        if is_awake:
            self._lower(at_ms // DAY_MS, mw)
        if mw > quiet_mw:
            self.quiet_ms = 0
        elif not self.quiet_ms or time_ms > GAP_MS:
            self.quiet_ms = at_ms
        if self.last_ms >= 0 and time_ms > 0 and (time_ms <= GAP_MS or risen_uj is not None):
            by_power_uj = (self.last_mw + mw) * time_ms // 2
            energy_uj = by_power_uj if risen_uj is None else risen_uj
            low_mw = min(self.low_mw, self.low_before_mw)
            self.measured_uj += energy_uj
            self.base_uj += min(energy_uj, low_mw * time_ms)
            self.measured_ms += time_ms
        self.last_ms, self.last_mw = max(self.last_ms, at_ms), mw
        self.counted_from, self.last_uj = counter

    def _risen_uj(self, time_ms: int, counter: Counter) -> int | None:
        """None where it is not known."""
        if self.last_ms < 0 or not counter.began or counter.began != self.counted_from:
            return None
        risen_uj = counter.uj - self.last_uj
        return None if 0 < time_ms * MOST_GUESSED_MW < risen_uj else risen_uj

    def _lower(self, day: int, mw: int) -> None:
        if day > self.day:
            self.low_before_mw = self.low_mw if day == self.day + 1 else UNSEEN
            self.day, self.low_mw = day, mw
        self.low_mw = min(self.low_mw, mw)

    def end_hour(self) -> None:
        self.measured_uj = self.base_uj = self.measured_ms = self.asked_uj = 0


class NodeCards(msgspec.Struct, array_like=True):
    node: str
    cards: dict[str, CardMeter] = {}
    capacity: Capacity = Capacity()
    known_ms: int = 0  # with known power, in the running hour; of a node that has left

    def ordered(self) -> list[tuple[str, CardMeter]]:
        return sorted(self.cards.items())

    def of_pod(self, uid: str, given: Sequence[str]) -> list[CardMeter]:
        """The cards in its Binding, else those that it owns; all if none is known."""
        of_it = [self.cards[name] for name in given if name in self.cards]
        of_it = of_it or [card for _, card in self.ordered() if card.owner == uid]
        return of_it or [card for _, card in self.ordered()]


class Total(NamedTuple):
    """The energy of a node in an hour, and its worth."""

    own_uj: int = 0
    idle_uj: int = 0
    worth: tuple[int, int, int, int] = (0, 0, 0, 0)

    def plus(self, row: NodeEnergy) -> "Total":
        more = (row.cost_n, row.priced_uj, row.co2_ug, row.weighed_uj)
        worth = tuple(mine + its for mine, its in zip(self.worth, more, strict=True))
        return Total(self.own_uj + row.pods_uj, self.idle_uj + row.idle_uj, worth)  # type: ignore[arg-type]


class MeteredCards:
    """The cards of all nodes."""

    def __init__(self, nodes: Iterable[NodeCards] = ()) -> None:
        self.nodes = {each.node: each for each in nodes}
        self._node_of = {
            name: each.node
            for each in self.nodes.values()
            for name, card in each.cards.items()
            if card.is_seen
        }

    def packed(self) -> list[NodeCards]:
        found = (self.nodes[name] for name in sorted(self.nodes))
        return [NodeCards(n.node, dict(n.ordered()), n.capacity, n.known_ms) for n in found]

    def fold(self, fact: Fact) -> None:
        """Facts about anything else change no card."""
        match fact:
            case GpuSeen():
                self._seen(fact)
            case GpuGone():
                self._gone(fact.uuid)
            case _:
                pass

    def _seen(self, fact: GpuSeen) -> None:
        if self._node_of.get(fact.uuid) != fact.node:
            self._gone(fact.uuid)
        self._node_of[fact.uuid] = fact.node
        card = self._card(fact.node, fact.uuid)
        card.is_seen = True
        card.owner = fact.owner or card.owner  # a pod that has just ended still has it

    def _gone(self, uuid: str) -> None:
        """It keeps what it has used in this hour."""
        node = self._node_of.pop(uuid, "")
        if node in self.nodes:
            card = self.nodes[node].cards[uuid]
            card.is_seen, card.last_ms, card.quiet_ms = False, -1, 0

    def read(
        self,
        node: str,
        power: CardPower,
        *,
        is_awake: bool,
        capacity: Capacity | None = None,
    ) -> None:
        """Power while the node is not awake does not count as idle power."""
        quiet_mw = capacity.gpu_max_mw * QUIET_PERMILLE // 1000 if capacity else 0
        for uuid, mw, counter in power.each():
            card = self._card(node, uuid)
            card.read(power.at_ms, mw, counter, is_awake=is_awake, quiet_mw=quiet_mw)

    def _card(self, node: str, uuid: str) -> CardMeter:
        of_node = self.nodes.get(node)
        if of_node is None:
            of_node = self.nodes[node] = NodeCards(node)
        return of_node.cards.setdefault(uuid, CardMeter())

    def share(self, node: str, capacity: Capacity, shared: Iterable[tuple[Stay, int]]) -> None:
        """The part of the energy of pods that they ask of cards goes to their cards."""
        of_node = self.nodes.get(node)
        if of_node is None:
            return
        for stay, own_uj in shared:
            part = asked_power(stay.asked, capacity)
            if part.gpu and own_uj:
                cards = of_node.of_pod(stay.pod.uid, stay.pod.cards)
                amounts = split(own_uj * part.gpu // part.whole, [1] * len(cards))
                for card, amount in zip(cards, amounts, strict=True):
                    card.asked_uj += amount

    def left(self, node: str, capacity: Capacity, known_ms: int) -> None:
        """The node is gone; what its cards used is reported at the end of the hour."""
        if node in self.nodes:
            of_node = self.nodes[node]
            of_node.capacity, of_node.known_ms = capacity, of_node.known_ms + known_ms
            for card in of_node.cards.values():
                card.last_ms, card.quiet_ms = -1, 0

    def end_hour(
        self, rows: Iterable[NodeEnergy], known: Mapping[str, tuple[Capacity, int]]
    ) -> list[CardEnergy]:
        """`known`: the capacity of each node that is there, and its time of known power."""
        totals: dict[str, Total] = {}
        for row in rows:
            if row.node in self.nodes:
                totals[row.node] = totals.get(row.node, Total()).plus(row)
        found: list[CardEnergy] = []
        for name in sorted(self.nodes):
            of_node = self.nodes[name]
            capacity, known_ms = known.get(name, (of_node.capacity, 0))
            hour = NodeCards(name, of_node.cards, capacity, of_node.known_ms + known_ms)
            found += card_rows(hour, totals.get(name, Total()))
            self._begin_hour(of_node)
        return found

    def _begin_hour(self, of_node: NodeCards) -> None:
        kept = {n: card for n, card in of_node.cards.items() if card.is_seen or card.measured_ms}
        for card in kept.values():
            card.end_hour()
        of_node.cards, of_node.known_ms = kept, 0
        if not kept:
            del self.nodes[of_node.node]


def card_rows(node: NodeCards, total: Total) -> list[CardEnergy]:
    """The cards of a node in an hour that used any energy."""
    cards = [card for _, card in node.ordered()]
    measured = _measured(cards, total)
    left = Total(
        total.own_uj - sum(own for own, _ in measured),
        total.idle_uj - sum(idle for _, idle in measured),
    )
    modelled = _modelled(cards, node, total.idle_uj, left)
    whole = total.own_uj + total.idle_uj
    return [
        CardEnergy(node.node, name, *row)
        for name, *row in _summed(node.ordered(), measured, modelled, total, whole)
    ]


Parts = list[tuple[int, int]]  # above idle, and idle, of each card


def _measured(cards: Sequence[CardMeter], total: Total) -> Parts:
    """The readings, at most the energy of the node; above idle at most that of its pods."""
    measured = [card.measured_uj for card in cards]
    all_uj = min(sum(measured), total.own_uj + total.idle_uj)
    energy = split(all_uj, measured)
    own = [
        (card.measured_uj - card.base_uj) * each // card.measured_uj if card.measured_uj else 0
        for card, each in zip(cards, energy, strict=True)
    ]
    wanted = min(max(sum(own), all_uj - total.idle_uj), total.own_uj)
    if wanted <= sum(own):
        own = split(wanted, own)
    else:
        room = [each - above for each, above in zip(energy, own, strict=True)]
        more = split(wanted - sum(own), room)
        own = [above + each for above, each in zip(own, more, strict=True)]
    return [(above, each - above) for above, each in zip(own, energy, strict=True)]


def _modelled(cards: Sequence[CardMeter], node: NodeCards, idle_uj: int, left: Total) -> Parts:
    """For the time without readings of the card, at most what is left of the node."""
    idle_each = _idle_share(node, idle_uj)
    known_ms = max(1, node.known_ms)
    silent_ms = [known_ms - min(known_ms, card.measured_ms) for card in cards]
    own = [card.asked_uj * ms // known_ms for card, ms in zip(cards, silent_ms, strict=True)]
    idle = [idle_each * ms // known_ms for ms in silent_ms]
    own = split(min(left.own_uj, sum(own)), own)
    return list(zip(own, split(min(left.idle_uj, sum(idle)), idle), strict=True))


def _idle_share(node: NodeCards, idle_uj: int) -> int:
    """The idle energy of one card, by the rated power of cards and processors."""
    capacity = node.capacity
    card_mw = (capacity.gpu_max_mw or int(guessed_gpu_max_w("") * 1000)) * IDLE_CARD_PERMILLE
    cpu_mw = capacity.cpu_max_mw or int(guessed_cpu_max_w(capacity.cpu_milli / 1000) * 1000)
    number = max(capacity.gpus, len(node.cards))
    return idle_uj * card_mw // (number * card_mw + cpu_mw * IDLE_REST_PERMILLE)


def _summed(
    named: Iterable[tuple[str, CardMeter]],
    measured: Parts,
    modelled: Parts,
    total: Total,
    whole_uj: int,
) -> Iterator[tuple[str, int, int, int, int, int, int, int]]:
    for (name, _), (own, idle), (by_model, idle_by_model) in zip(
        named, measured, modelled, strict=True
    ):
        energy = own + idle + by_model + idle_by_model
        if energy:
            cost, priced, co2, weighed = (each * energy // whole_uj for each in total.worth)
            parts = (own + by_model, idle + idle_by_model, by_model + idle_by_model)
            yield name, *parts, cost, priced, co2, weighed


def split(total: int, weights: Sequence[int]) -> list[int]:
    """Shares by weight with exactly this sum; none is larger than its weight if the total is not.

    Remainders go to the weights in order.
    """
    whole, counted, given = sum(weights), 0, 0
    shares: list[int] = []
    for weight in weights:
        counted += weight
        upto = total * counted // whole if whole else 0
        shares.append(upto - given)
        given = upto
    return shares
