"""Energy in the readings of the scraper, beside what a simulated exporter has metered."""

import random
from collections.abc import Callable

import pytest

from joulie_bus.events import TelemetrySampled
from joulie_bus.metering.reporter import Moment
from joulie_operator.facts.metered_nodes import MeteredNodes
from joulie_operator.facts.readings import NODE, Counter, Reading

OLD_J = 10**9  # such a counter has not restarted unnoticed


class Exporter:
    """A node whose true energy is known, with an exporter that is scraped now and then."""

    def __init__(self, scraped_each_s: int = 1, joules: float = OLD_J) -> None:
        self.nodes, self.now_s = MeteredNodes(), 0
        self.true_j, self._each_s = 0.0, scraped_each_s
        self.joules = joules
        self._scraped: tuple[float, float] = (0.0, 0.0)
        self.readings: list[TelemetrySampled] = []
        self._true_j: list[float] = []  # when each was made

    def second(self, watts: float, *, is_polled: bool = True, is_counted: bool = True) -> None:
        self.now_s += 1
        self.true_j += watts
        self.joules += watts
        if self.now_s % self._each_s == 0:
            self._scraped = watts, self.joules
        if is_polled and self._scraped[0]:
            self.poll(is_counted=is_counted)

    def poll(self, *, is_counted: bool = True) -> None:
        watts, joules = self._scraped
        counter: Counter = {"package": joules * 1e6} if is_counted else {}
        reading = Reading(watts, "kepler package", counters={NODE: counter})
        at = Moment(float(self.now_s), 1 + self.now_s)
        for sampled in self.nodes.samples({"n1": reading}, at):
            self.readings.append(sampled)
            self._true_j.append(self.true_j)

    def used_j(self, since: int = 0) -> float:
        return self._true_j[-1] - self._true_j[since]

    def counted_j(self, since: int = 0) -> float:
        """By readings with one counter; fails if there is more than one."""
        first, last = self.readings[since], self.readings[-1]
        assert {each.counted_from for each in self.readings[since:]} == {last.counted_from}
        return (last.energy_uj - first.energy_uj) / 1e6


def test_steady_power_is_published_each_ten_seconds_and_a_step_at_once() -> None:
    node = Exporter()
    for second in range(66):
        node.second(300 if second < 35 else 700)

    powers = [each.power_mw // 1000 for each in node.readings]
    assert powers == [300, 300, 300, 300, 700, 700, 700, 700]
    assert node.counted_j() == pytest.approx(node.used_j())


def test_a_counter_has_what_happens_between_two_scrapes() -> None:
    """Polled power alone would show a scrape each 15 s as if it had lasted."""
    draw, node = random.Random(7), Exporter(scraped_each_s=15)
    for second in range(3600):
        node.second(900 if second % 15 < 3 else 200 + draw.random())

    assert node.counted_j() == pytest.approx(node.used_j(), rel=0.01)


def test_without_a_counter_the_polled_power_is_added_up() -> None:
    node = Exporter()
    for second in range(61):
        node.second(200 + second % 10, is_counted=False)

    first, last = node.readings[0], node.readings[-1]
    assert node.counted_j() == pytest.approx(node.used_j(), rel=0.01)
    assert (last.min_mw, last.max_mw, first.mean_mw) == (200_000, 209_000, None)


def outage(node: Exporter, seconds: int, *, is_counted: bool = True) -> int:
    """Returns the number of the first reading after it."""
    for _ in range(120):
        node.second(300, is_counted=is_counted)
    for _ in range(seconds):
        node.second(300, is_polled=False)
    first = len(node.readings)
    for _ in range(60):
        node.second(300, is_counted=is_counted)
    return first


def test_an_outage_of_the_polling_is_not_filled_with_power() -> None:
    node = Exporter()
    first = outage(node, 600, is_counted=False)

    assert node.readings[first].counted_from != node.readings[first - 1].counted_from
    assert node.counted_j(first) == pytest.approx(node.used_j(first), rel=0.01)


def test_a_counter_that_went_on_covers_an_outage_of_the_polling() -> None:
    node = Exporter()
    outage(node, 600)

    assert node.counted_j() == pytest.approx(node.used_j(), rel=0.01)


def restart(node: Exporter) -> None:
    node.joules = 0.0


def restart_and_exceed(node: Exporter) -> None:
    """As if it had counted more since than it had before."""
    node.joules = 400_000.0


@pytest.mark.parametrize(("joules", "happens"), [(OLD_J, restart), (300_000.0, restart_and_exceed)])
def test_a_counter_that_may_have_restarted_in_an_outage_begins_again(
    joules: float, happens: Callable[[Exporter], None]
) -> None:
    node = Exporter(joules=joules)
    for _ in range(120):
        node.second(300)
    node.now_s += 600
    happens(node)
    first = len(node.readings)
    for _ in range(60):
        node.second(300)

    assert node.readings[first].counted_from != node.readings[first - 1].counted_from
    assert node.counted_j(first) == pytest.approx(node.used_j(first), rel=0.01)


def test_the_energy_of_an_outage_is_not_counted_with_the_scrape_that_ends_it() -> None:
    """The first answer after the outage may still be the value from before."""
    node = Exporter(scraped_each_s=15)
    for _ in range(120):
        node.second(300)
    node.now_s += 600
    node.poll()
    first = len(node.readings) - 1
    node.joules += 600 * 300
    for _ in range(300):
        node.second(300)

    assert node.readings[first].counted_from != node.readings[first - 1].counted_from
    assert node.counted_j(first) == pytest.approx(node.used_j(first), rel=0.01)


def test_a_restart_of_the_exporter_loses_no_energy() -> None:
    node = Exporter()
    for second in range(600):
        if second in (100, 300):
            restart(node)
        node.second(300)

    assert node.counted_j() == pytest.approx(node.used_j(), rel=0.01)


def test_cards_are_counted_apart_and_in_the_node() -> None:
    nodes = MeteredNodes()
    readings: list[TelemetrySampled] = []
    for second in range(31):
        counters = {
            NODE: {"package": (OLD_J + 400 * second) * 1e6},
            "a": {"": (OLD_J + 700 * second) * 1e6},
        }
        reading = Reading(1100, "kepler package, dcgm", {"a": 700}, True, counters)
        readings += nodes.samples({"n1": reading}, Moment(second, 1))

    first, last = readings[0], readings[-1]
    assert last.energy_uj - first.energy_uj == pytest.approx(1100 * 30 * 1e6, rel=0.001)
    assert last.card_uj[0] - first.card_uj[0] == pytest.approx(700 * 30 * 1e6, rel=0.001)


def test_a_platform_counts_its_cards_once() -> None:
    nodes = MeteredNodes()
    readings: list[TelemetrySampled] = []
    for second in range(31):
        reading = Reading(1100, "kepler platform", {"a": 700})
        readings += nodes.samples({"n1": reading}, Moment(second, 1))

    assert readings[-1].energy_uj == 1100 * 30 * 10**6
    assert readings[-1].card_uj == (700 * 30 * 10**6,)


def test_another_source_of_the_power_begins_another_counter() -> None:
    nodes = MeteredNodes()
    found: list[TelemetrySampled] = []
    for second in range(40):
        if second < 20:
            reading = Reading(1100, "kepler platform", {"a": 700})
        else:
            reading = Reading(1000, "kepler package, dcgm", {"a": 700}, True)
        found += nodes.samples({"n1": reading}, Moment(second, 1 + second))

    assert len({each.counted_from for each in found}) == 2
