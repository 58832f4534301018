import math

import pytest

from joulie_operator.facts.readings import (
    CARDS,
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
    assert whole_nodes(found, KNOWN) == {"gpu1": Reading(1750, "kepler package, dcgm", by_card)}


def test_a_card_without_a_uuid_counts_for_its_node_only() -> None:
    """Its index is no name: another exporter or the events of cards would give it another one."""
    cards = [Series({"Hostname": "gpu1", "gpu": str(at)}, 700) for at in range(2)]
    found = {ZONES: [zone("package", 400, node="gpu1")], CARDS: cards}

    assert whole_nodes(found, KNOWN) == {"gpu1": Reading(1800, "kepler package, dcgm")}


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
