"""Laws of what readings mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_agent.measure.counters import Count, advanced_uj
from joulie_agent.measure.links import groups_of
from joulie_agent.measure.node_power import node_power
from joulie_agent.measure.processors import processors_mw
from joulie_agent.probes import CardProbe
from joulie_bus.events import HardwareDiscovered
from joulie_bus.metering.energy import EnergyMeter
from joulie_bus.metering.meters import Meter, Part
from joulie_bus.metering.pace import Pace, Published, is_worth_it

RANGE = 262_143_328_850
PACKAGE = Meter("rapl", "package-0", Part.PACKAGE)
DRAM = Meter("rapl", "package-0/dram", Part.MEMORY)
PLATFORM = Meter("rapl", "psys", Part.PLATFORM)
CHASSIS = Meter("hwmon", "power_meter hwmon0/1", Part.CHASSIS)
SOCKET = Meter("hwmon", "amd_energy hwmon2/Esocket0", Part.PACKAGE)
CARD = Meter("nvml", "GPU-1", Part.CARD)


@given(st.integers(0, RANGE - 1), st.integers(0, RANGE // 2))
def test_a_counter_that_wraps_loses_nothing(start: int, energy: int) -> None:
    after = (start + energy) % RANGE
    assert advanced_uj(Count(0.0, start), Count(1.0, after), RANGE) == energy


def test_a_counter_that_could_have_wrapped_twice_says_nothing() -> None:
    assert advanced_uj(Count(0.0, 5), Count(3600.0, 9), RANGE) is None


def test_a_counter_without_a_range_that_falls_has_restarted() -> None:
    assert advanced_uj(Count(0.0, 500), Count(1.0, 3), 0) is None
    assert advanced_uj(Count(0.0, 500), Count(1.0, 800), 0) == 300


def test_packages_memory_and_cards_add_up() -> None:
    power = node_power({PACKAGE: 200_000, DRAM: 30_000, CARD: 73_000})
    assert power is not None
    assert (power.power_mw, power.covers) == (303_000, "parts")
    assert power.card_mw == {"GPU-1": 73_000}
    assert power.provider == "rapl package+memory, nvml card"


def test_a_meter_of_the_chassis_already_has_everything() -> None:
    power = node_power({PACKAGE: 200_000, CHASSIS: 412_000, CARD: 73_000})
    assert power is not None
    assert (power.power_mw, power.covers) == (412_000, "node")


def test_a_platform_counter_replaces_its_packages() -> None:
    power = node_power({PACKAGE: 200_000, DRAM: 30_000, PLATFORM: 300_000, CARD: 73_000})
    assert power is not None
    assert power.power_mw == 373_000


def test_two_meters_of_one_processor_count_once() -> None:
    power = node_power({PACKAGE: 200_000, SOCKET: 199_000})
    assert power is not None
    assert power.power_mw == 200_000


def test_a_sum_that_lacks_one_processor_or_its_memory_is_none() -> None:
    other, readings = PACKAGE._replace(component="package-1"), {PACKAGE: 200_000, DRAM: 30_000}
    assert node_power(readings, {other}) is None
    assert node_power({PACKAGE: 200_000}, {DRAM}) is None
    rest = node_power(readings | {CARD: 73_000}, {other})
    assert rest is not None
    assert (rest.power_mw, rest.covers) == (73_000, "cards")


def test_another_meter_of_the_processors_replaces_one_that_is_incomplete() -> None:
    power = node_power({PACKAGE: 200_000, SOCKET: 199_000}, {DRAM})
    assert power is not None
    assert power.power_mw == 199_000


def test_a_meter_of_the_chassis_needs_no_other() -> None:
    power = node_power({CHASSIS: 412_000}, {PACKAGE, DRAM})
    assert power is not None
    assert power.power_mw == 412_000


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 350.0), (0.5, 525.0), (1.0, 700.0)])
def test_processors_without_a_meter_draw_half_when_idle_and_all_when_busy(
    busy: float, watts: float
) -> None:
    hardware = HardwareDiscovered(
        node="n1", cpu_model="", cpu_sockets=2, cpu_cores=128, cpu_max_mw_per_socket=350_000
    )
    assert processors_mw(hardware, busy) == watts * 1000


def test_cards_alone_are_named_as_such_and_nothing_is_no_power() -> None:
    power = node_power({CARD: 73_000})
    assert power is not None
    assert power.covers == "cards"
    assert node_power({DRAM: 30_000}) is None
    assert node_power({}) is None


def test_a_change_is_published_at_once_but_at_most_once_a_second() -> None:
    pace, last = Pace(10.0, 1.0), Published(100.0, 400_000)
    assert is_worth_it(None, 0.0, 1, pace)
    assert not is_worth_it(last, 100.5, 900_000, pace)
    assert is_worth_it(last, 101.0, 421_000, pace)
    assert not is_worth_it(last, 101.0, 420_000, pace)
    assert is_worth_it(last, 110.0, 400_000, pace)


@given(st.lists(st.tuples(st.integers(1, 800_000), st.integers(0, 10**9)), max_size=40))
def test_the_energy_of_a_card_never_falls(steps: list[tuple[int, int]]) -> None:
    meter, before = EnergyMeter(), 0
    for second, (power_mw, risen_uj) in enumerate(steps):
        meter.saw_power(float(second), power_mw)
        if second % 3 == 2:
            meter.saw_counter(risen_uj)
        assert meter.total_uj >= before
        before = meter.total_uj


def test_the_counter_corrects_what_power_added_up_to() -> None:
    meter = EnergyMeter()
    meter.saw_counter(None)
    for second in range(11):
        meter.saw_power(float(second), 100_000)
    meter.saw_counter(1_050_000_000)
    assert meter.total_uj == 1_050_000_000


def test_the_counter_of_a_card_is_read_each_ten_seconds_and_corrects_its_power() -> None:
    """By the counter, the card draws 10 % more than its power shows."""
    now_s, reads = 0.0, list[float]()

    def read_uj() -> int:
        reads.append(now_s)
        return round(110_000_000 * now_s)

    probe = CardProbe(CARD, lambda: 100.0, read_uj)
    for second in range(41):
        now_s = float(second)
        probe.power_mw(now_s)

    assert reads == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert probe.energy.total_uj == 40 * 110_000_000


def test_a_card_without_a_counter_is_counted_by_its_power() -> None:
    probe = CardProbe(CARD, lambda: 100.0, lambda: None)
    for second in range(21):
        probe.power_mw(float(second))
    assert probe.energy.total_uj == 20 * 100_000_000


def test_cards_behind_one_switch_share_a_group() -> None:
    linked = groups_of({"b": {"switch"}, "a": {"switch"}, "c": set()})
    assert linked == {"a": "link-a", "b": "link-a"}


def test_a_chain_of_links_is_one_group() -> None:
    assert len(set(groups_of({"a": {"b"}, "b": {"c"}, "c": set()}).values())) == 1
