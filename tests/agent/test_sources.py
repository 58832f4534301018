"""Sources over trees of several generations of hardware."""

from pathlib import Path

import pytest

import host_trees
from joulie_agent.sources import amdgpu, hwmon, powercap
from joulie_agent.sources.host import Findings, Host
from joulie_bus.events.bounds import is_card_name


def test_amd_shows_a_package_under_the_names_of_intel(tmp_path: Path) -> None:
    known = powercap.domains(Host(host_trees.epyc(tmp_path)))
    assert [(domain.name, domain.kind) for domain in known] == [
        ("package-0", "package"),
        ("package-0/core", "part"),
    ]


def test_the_platform_counter_is_found_beside_the_package(tmp_path: Path) -> None:
    kinds = {
        domain.name: domain.kind for domain in powercap.domains(Host(host_trees.client(tmp_path)))
    }
    assert kinds["psys"] == "psys"
    assert kinds["package-0/uncore"] == "part"


def test_the_second_interface_to_the_package_is_left_out(tmp_path: Path) -> None:
    names = [domain.name for domain in powercap.domains(Host(host_trees.xeon(tmp_path)))]
    assert len(names) == len(set(names)) == 4


def test_domains_are_found_through_links_as_the_kernel_lays_them(tmp_path: Path) -> None:
    """/sys/class/powercap holds links into /sys/devices, and lists parts beside their packages."""
    real = tmp_path / "sys/devices/virtual/powercap/intel-rapl"
    listed = tmp_path / "sys/class/powercap"
    host_trees.xeon(tmp_path / "made")
    real.parent.mkdir(parents=True)
    made = tmp_path / "made/sys/class/powercap"
    real.mkdir()
    listed.mkdir(parents=True)
    for zone in ("intel-rapl:0", "intel-rapl:1"):
        (made / zone).rename(real / zone)
        (listed / zone).symlink_to(Path("../../devices/virtual/powercap/intel-rapl") / zone)
        part = f"{zone}:0"
        (listed / part).symlink_to(Path("../../devices/virtual/powercap/intel-rapl") / zone / part)
    (listed / "intel-rapl").symlink_to("../../devices/virtual/powercap/intel-rapl")
    names = sorted(domain.name for domain in powercap.domains(Host(tmp_path)))
    assert names == ["package-0", "package-0/dram", "package-1", "package-1/dram"]


def test_a_power_meter_of_the_board_covers_the_chassis(tmp_path: Path) -> None:
    host_trees.sensor(tmp_path, 0, "coretemp", {"temp1_input": 40_000})
    host_trees.sensor(tmp_path, 1, "power_meter", {"power1_average": 412_000_000})
    (sensor,) = hwmon.sensors(Host(tmp_path))
    assert (sensor.kind, sensor.is_counter) == ("chassis", False)
    assert hwmon.value(Host(tmp_path), sensor) == pytest.approx(412)


def test_sockets_of_amd_energy_count_and_its_cores_do_not(tmp_path: Path) -> None:
    files: dict[str, str | int] = {"energy1_input": 5, "energy1_label": "Ecore000"}
    files |= {"energy2_input": 7, "energy2_label": "Esocket0"}
    host_trees.sensor(tmp_path, 2, "amd_energy", files)
    assert [sensor.kind for sensor in hwmon.sensors(Host(tmp_path))] == ["part", "package"]


def test_cards_of_amd_share_a_hive_and_show_their_limits(tmp_path: Path) -> None:
    found = Findings()
    cards = amdgpu.read(Host(host_trees.instinct(tmp_path)), found)
    assert [card.model for card in cards] == ["AMD Instinct MI300X"] * 2
    assert cards[0].link_group == cards[1].link_group != ""
    assert [reading.watts for reading in found.readings] == [145.0, 145.000001]
    assert [cap.max_watts for cap in found.caps] == [750.0, 750.0]
    assert all(card.healthy for card in cards)


def test_uncorrected_errors_of_a_card_of_amd_make_it_sick(tmp_path: Path) -> None:
    root = host_trees.instinct(tmp_path, 1)
    host_trees.write(root, {"sys/class/drm/card0/device/ras/umc_err_count": "ue: 2\nce: 0"})
    (card,) = amdgpu.read(Host(root), Findings())
    assert card.problems == ("2 uncorrected errors of the memory",)


def test_cards_of_amd_without_a_unique_id_have_names_of_their_own_on_each_node(
    tmp_path: Path,
) -> None:
    root = host_trees.instinct(tmp_path, 1)
    host_trees.write(root, {"sys/class/drm/card0/device/unique_id": ""})
    names = [amdgpu.read(Host(root, node), Findings())[0].uuid for node in ("n1.lab", "n2")]

    assert all(map(is_card_name, names)), names
    assert names[0].endswith(".n1.lab")
    assert len(set(names)) == 2
