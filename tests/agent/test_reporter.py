"""Laws of the counters in published readings."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from joulie_agent.measure.node_power import node_power
from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.pace import Pace
from joulie_bus.metering.reporter import LONGEST_S, Moment, Reporter

PACKAGE = Meter("rapl", "package-0", Part.PACKAGE)
CARD = Meter("nvml", "GPU-1", Part.CARD)
BOTH, ALONE = frozenset({PACKAGE, CARD}), frozenset({PACKAGE})


class Node:
    """A node whose true energy the test knows, with a reporter that samples it each second."""

    def __init__(self, pace: Pace = Pace()) -> None:  # noqa: B008
        self.reporter = Reporter("n1", pace)
        self.now_s = 0.0
        self.totals: dict[Meter, int] = {PACKAGE: 0, CARD: 0}
        self.readings: list[TelemetrySampled] = []

    def second(self, watts: Mapping[Meter, int], passed_s: float = 1.0) -> None:
        self.now_s += passed_s
        for meter, each in watts.items():
            self.totals[meter] += round(each * passed_s * 1_000_000)
        power = node_power({meter: each * 1000 for meter, each in watts.items()})
        self.report(power)

    def report(self, power: NodePower | None) -> None:
        moment = Moment(self.now_s, 1 + round(self.now_s * 1000))
        if power is None:
            self.reporter.missed()
        elif reading := self.reporter.observe(moment, power, self.totals):
            self.readings.append(reading)


def test_a_reading_has_the_energy_of_the_node_and_of_its_cards() -> None:
    node = Node()
    for _ in range(11):
        node.second({PACKAGE: 200, CARD: 300})
    first, last = node.readings
    assert last.energy_uj - first.energy_uj == 5_000_000_000
    assert last.card_uj[0] - first.card_uj[0] == 3_000_000_000
    assert last.counted_from == first.counted_from > 0


def test_a_reading_has_the_lowest_the_mean_and_the_highest_power_of_its_time() -> None:
    node = Node()
    for watts in (200, 190, 210, 200, 200, 200, 200, 200, 200, 200, 200):
        node.second({PACKAGE: watts})
    first, last = node.readings
    assert (first.min_mw, first.mean_mw, first.max_mw) == (None, None, None)
    assert (last.min_mw, last.mean_mw, last.max_mw) == (190_000, 200_000, 210_000)


def test_a_peak_between_two_readings_is_in_the_counter() -> None:
    node = Node(Pace(10.0, 10.0))
    for watts in (100, *([100] * 4), 700, *([100] * 5)):
        node.second({PACKAGE: watts})
    first, last = node.readings
    assert last.energy_uj - first.energy_uj == (9 * 100 + 700) * 1_000_000
    assert last.max_mw == 700_000


def test_a_time_without_power_begins_another_counter() -> None:
    node = Node()
    node.second({PACKAGE: 100})
    node.report(None)
    for _ in range(10):
        node.second({PACKAGE: 100})
    first, last = node.readings
    assert last.counted_from != first.counted_from
    assert last.mean_mw is None


def test_an_agent_that_stood_still_begins_another_counter() -> None:
    node = Node()
    node.second({PACKAGE: 100})
    node.second({PACKAGE: 100}, passed_s=LONGEST_S + 1)
    first, last = node.readings
    assert last.counted_from != first.counted_from


STEPS = st.lists(
    st.tuples(st.sampled_from([BOTH, BOTH, BOTH, ALONE, None]), st.integers(0, 900)), max_size=60
)


@given(STEPS)
def test_counters_that_began_at_the_same_time_differ_by_the_true_energy(
    steps: list[tuple[frozenset[Meter] | None, int]],
) -> None:
    """Whatever meters come and go, and whichever readings are lost."""
    node, true_uj = Node(), list[int]()
    for meters, watts in steps:
        seen = len(node.readings)
        if meters is None:
            node.now_s += 1
            node.totals[PACKAGE] += 123_000_000
            node.report(None)
        else:
            node.second(dict.fromkeys(meters, watts))
        used = node.totals[PACKAGE] + node.totals[CARD] if meters == BOTH else node.totals[PACKAGE]
        true_uj += [used] * (len(node.readings) - seen)
    told = list(zip(node.readings, true_uj, strict=True))
    for at, (first, before_uj) in enumerate(told):
        for later, after_uj in told[at:]:
            if later.counted_from == first.counted_from:
                assert later.energy_uj - first.energy_uj == after_uj - before_uj
