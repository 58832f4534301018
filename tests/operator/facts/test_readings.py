import math

import pytest

from joulie_operator.facts.readings import (
    CARDS,
    COUNTED_CARDS,
    COUNTED_OLD,
    COUNTED_ZONES,
    NODE,
    OLD_DRAM,
    OLD_PACKAGE,
    OLD_PLATFORM,
    PLATFORM,
    ZONES,
    Reading,
    Series,
    whole_nodes,
)

KNOWN = {"n1": 0, "gpu1": 2}


def zone(name: str, watts: float, path: str = "", node: str = "n1") -> Series:
    return Series({"node_name": node, "zone": name, "path": path}, watts)


def gpu(uuid: str, watts: float, node: str = "gpu1", **labels: str) -> Series:
    return Series({"Hostname": node, "UUID": uuid, **labels}, watts)


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([zone("package", 100)], Reading(100, "kepler package")),
        (
            [zone("package", 100), zone("core", 60), zone("uncore", 10)],
            Reading(100, "kepler package"),
        ),
        ([zone("package", 100), zone("dram", 20)], Reading(120, "kepler package")),
        ([zone("psys", 180), zone("package", 100), zone("dram", 20)], Reading(180, "kepler psys")),
        (
            [zone("package-0", 100, "/a"), zone("package-1", 90, "/b")],
            Reading(190, "kepler package"),
        ),
        ([zone("package", 100, "/a"), zone("package", 90, "/b")], Reading(190, "kepler package")),
        ([zone("package", 100, "/a"), zone("package", 104, "/a")], Reading(104, "kepler package")),
        ([zone("core", 60), zone("dram", 20)], None),
        ([zone("package", math.nan)], None),
        ([zone("package", -5)], None),
        ([zone("package", math.inf), zone("dram", 20)], None),
    ],
    ids=[
        *("one package", "parts of a package", "memory beside it", "psys holds them all"),
        *("two sockets by zone", "two sockets by path", "one sensor shown by two exporters"),
        *("parts alone", "not a number", "negative", "infinite"),
    ],
)
def test_nested_zones_are_counted_once(series: list[Series], expected: Reading | None) -> None:
    assert whole_nodes({ZONES: series}, KNOWN).get("n1") == expected


def test_a_platform_reading_includes_the_cards() -> None:
    box = Series({"node_name": "gpu1", "chassis_id": "1"}, 2500)
    found = {PLATFORM: [box], ZONES: [zone("package", 400, node="gpu1")], CARDS: [gpu("a", 700)]}

    assert whole_nodes(found, KNOWN) == {"gpu1": Reading(2500, "kepler platform", {"a": 700})}


def test_cards_are_added_to_the_board() -> None:
    cards = [gpu("a", 700), gpu("b", 650)]
    found = {ZONES: [zone("package", 400, node="gpu1")], CARDS: cards}

    by_card = {"a": 700, "b": 650}
    assert whole_nodes(found, KNOWN) == {
        "gpu1": Reading(1750, "kepler package, dcgm", by_card, True)
    }


def test_a_card_without_a_uuid_counts_for_its_node_only() -> None:
    """Its index is no name: another exporter or the events of cards would give it another one."""
    cards = [Series({"Hostname": "gpu1", "gpu": str(at)}, 700) for at in range(2)]
    found = {ZONES: [zone("package", 400, node="gpu1")], CARDS: cards}

    assert whole_nodes(found, KNOWN) == {"gpu1": Reading(1800, "kepler package, dcgm", {}, True)}


def test_series_of_slices_and_pods_count_the_watts_of_a_card_once() -> None:
    cards = [gpu("a", 700, GPU_I_ID="1"), gpu("a", 700, GPU_I_ID="2"), gpu("b", 650, pod="p")]
    found = {ZONES: [zone("package", 400, node="gpu1")], CARDS: cards}

    assert whole_nodes(found, KNOWN)["gpu1"].watts == 1750


@pytest.mark.parametrize("cards", [[], [gpu("a", 700)]], ids=["no card", "one of two"])
def test_a_node_with_unmeasured_cards_has_no_reading(cards: list[Series]) -> None:
    found = {ZONES: [zone("package", 400, node="gpu1")], CARDS: cards}

    assert whole_nodes(found, KNOWN) == {}


def test_cards_without_their_board_give_no_reading() -> None:
    assert whole_nodes({CARDS: [gpu("a", 700), gpu("b", 650)]}, KNOWN) == {}


def test_older_exporters_are_read_in_both_their_modes() -> None:
    def mode(kind: str, watts: float) -> Series:
        return Series({"instance": "n1:9102", "mode": kind}, watts)

    packages, memory = [mode("idle", 60), mode("dynamic", 40)], [mode("dynamic", 20)]
    platform = [mode("idle", 150), mode("dynamic", 50)]

    assert whole_nodes({OLD_PACKAGE: packages, OLD_DRAM: memory}, KNOWN)["n1"].watts == 120
    assert whole_nodes({OLD_PACKAGE: packages, OLD_PLATFORM: platform}, KNOWN)["n1"].watts == 200


def test_unknown_nodes_are_ignored() -> None:
    assert whole_nodes({ZONES: [zone("package", 100, node="stranger")]}, KNOWN) == {}


def counted(found: dict[str, list[Series]], node: str = "gpu1") -> dict[str, float]:
    """Microjoules by card, and of the rest."""
    counters = whole_nodes(found, KNOWN)[node].counters
    return {name: sum(counter.values()) for name, counter in counters.items()}


def test_the_counter_of_a_node_has_the_sensors_of_its_power() -> None:
    found = {
        ZONES: [zone("package-0", 100, "/a"), zone("package-1", 90, "/b"), zone("dram", 20)],
        COUNTED_ZONES: [
            *(zone("package-0", 5000, "/a"), zone("package-1", 4000, "/b"), zone("dram", 900)),
            zone("core", 3000, "/c"),
        ],
    }

    assert counted(found, "n1") == {NODE: 9_900_000_000}


def test_a_sensor_without_a_counter_leaves_the_node_without_one() -> None:
    found = {
        ZONES: [zone("package-0", 100, "/a"), zone("package-1", 90, "/b")],
        COUNTED_ZONES: [zone("package-0", 5000, "/a")],
    }

    assert counted(found, "n1") == {}


def test_a_sensor_that_two_exporters_count_has_no_counter() -> None:
    def by(pod: str, joules: float) -> Series:
        return Series({"node_name": "n1", "zone": "package", "pod": pod}, joules)

    watts, joules = [by("old", 100), by("new", 100)], [by("old", 5000), by("new", 7)]

    assert counted({ZONES: watts, COUNTED_ZONES: joules}, "n1") == {}


def test_counters_of_cards_are_those_of_the_driver() -> None:
    cards = [gpu("a", 700), gpu("b", 650)]
    joules = [gpu("a", 9_000_000, GPU_I_ID="1"), gpu("a", 9_000_500, GPU_I_ID="2"), gpu("b", 4e6)]
    board = [zone("package", 400, node="gpu1")]
    counts = [zone("package", 77_000, node="gpu1")]
    found = {ZONES: board, CARDS: cards, COUNTED_CARDS: joules, COUNTED_ZONES: counts}

    expected = {NODE: 77_000_000_000, "a": 9_000_500_000, "b": 4_000_000_000}
    assert counted(found) == expected


def test_a_board_with_a_card_without_a_uuid_has_no_counter() -> None:
    """Power of that card counts with the board, and its counter is not part of any."""
    found = {
        ZONES: [zone("package", 400, node="gpu1")],
        CARDS: [gpu("a", 700), Series({"Hostname": "gpu1", "gpu": "1"}, 650)],
        COUNTED_ZONES: [zone("package", 77_000, node="gpu1")],
        COUNTED_CARDS: [gpu("a", 9_000_000)],
    }

    assert counted(found) == {"a": 9_000_000_000}


def test_older_exporters_count_in_both_their_modes() -> None:
    def mode(kind: str, value: float) -> Series:
        return Series({"instance": "n1:9102", "mode": kind}, value)

    found = {
        OLD_PACKAGE: [mode("idle", 60), mode("dynamic", 40)],
        COUNTED_OLD[1]: [mode("idle", 6000), mode("dynamic", 4000)],
    }

    assert counted(found, "n1") == {NODE: 10_000_000_000}
