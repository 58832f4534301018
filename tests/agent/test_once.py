"""`joulie agent --once -o json` over trees of several machines."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import host_trees
import nvml_recordings

Once = Callable[..., dict[str, Any]]


def amounts(report: dict[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    return {
        f"{each['source']} {each['component']}": (each.get("watts"), each.get("joules"))
        for each in report["readings"]
    }


def missing(report: dict[str, Any]) -> dict[str, str]:
    return {each["source"]: each["why"] for each in report["not_available"]}


@pytest.mark.slow
def test_two_packages_and_their_memory_are_counters_in_joules(tmp_path: Path, once: Once) -> None:
    report = once(host_trees.xeon(tmp_path))
    assert amounts(report) == {
        "rapl package-0": (None, 1.0),
        "rapl package-0/dram": (None, 0.5),
        "rapl package-1": (None, 2.0),
        "rapl package-1/dram": (None, 0.5),
    }
    assert report["node"] == "n1"
    assert report["hardware"]["cpu"] == {
        "model": "Intel(R) Xeon(R) Platinum 8480+",
        "sockets": 2,
        "cores": 4,
        "threads": 8,
    }
    assert report["hardware"]["memory_bytes"] == 131072000 * 1024
    assert report["hardware"]["machine"] == "Dell Inc. PowerEdge R760"
    assert {cap["component"]: cap["watts"] for cap in report["caps"]} == {
        "package-0": 350.0,
        "package-1": 350.0,
    }


@pytest.mark.slow
def test_without_the_extra_rapl_is_read_and_the_other_sources_say_what_to_install(
    tmp_path: Path, once: Once
) -> None:
    host = host_trees.xeon(tmp_path)
    socket = host / "var/lib/kubelet/pod-resources/kubelet.sock"
    socket.parent.mkdir(parents=True)
    socket.touch()

    report = once(host, has_extra=False)

    assert amounts(report)["rapl package-0"] == (None, 1.0)
    why = missing(report)
    assert "pip install 'joulie[agent]'" in why["nvml"]
    assert "pip install 'joulie[agent]'" in why["kubelet"]


@pytest.mark.slow
def test_a_machine_without_meters_gets_a_reason_for_each_source(tmp_path: Path, once: Once) -> None:
    report = once(tmp_path)
    assert report["readings"] == report["cards"] == report["caps"] == []
    why = missing(report)
    assert set(why) >= {"rapl", "hwmon", "nvml", "amdgpu", "power", "cpuinfo", "meminfo"}
    assert why["power"].startswith("no power source here")


@pytest.mark.slow
def test_a_virtual_machine_is_named_as_the_reason(tmp_path: Path, once: Once) -> None:
    listed = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lahf_lm"
    report = once(host_trees.write(tmp_path, {"proc/cpuinfo": listed}))
    assert report["hardware"]["virtual"]
    assert "virtual machine" in missing(report)["power"]


@pytest.mark.slow
def test_a_counter_with_text_is_reported_and_never_zero(tmp_path: Path, once: Once) -> None:
    host_trees.rapl_zone(tmp_path, "intel-rapl:0", "package-0", "broken")
    report = once(tmp_path)
    assert report["readings"] == []
    assert "'broken' is not a number" in missing(report)["rapl package-0"]


@pytest.mark.slow
def test_a_recorded_card_answers_through_nvidias_own_binding(
    tmp_path: Path, once: Once, nvml_library: Path
) -> None:
    recorded = nvml_recordings.recording(tmp_path)
    report = once(
        tmp_path,
        NVML_RECORDING=str(recorded),
        LD_LIBRARY_PATH=str(nvml_library.parent),
        NVML_CARDS="2",
    )
    uuid = "GPU-00000000-1111-2222-3333-444444444444"
    assert amounts(report)[f"nvml {uuid}"] == (73.248, 3006.678)
    card, other = report["cards"]
    assert (card["uuid"], card["model"], card["memory_mb"]) == (
        uuid,
        "NVIDIA H100 80GB HBM3",
        81559,
    )
    assert card["healthy"]
    assert other["uuid"] != uuid
    cap = report["caps"][0]
    assert (cap["watts"], cap["min_watts"], cap["max_watts"]) == (700.0, 200.0, 700.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ecc10": 3}, "3 uncorrected ECC errors"),
        ({"nvmlDeviceGetRemappedRows": [0, 1, 1, 0]}, "waits for a reset"),
        ({"nvmlDeviceGetRemappedRows": [0, 1, 0, 1]}, "remapping of a faulty memory row failed"),
        (
            {"fields": {"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": {"ret": 0, "type": 1, "u": 2}}},
            "reboot of the node",
        ),
    ],
)
def test_a_sick_card_says_why(
    tmp_path: Path, once: Once, nvml_library: Path, changes: dict[str, Any], problem: str
) -> None:
    recorded = nvml_recordings.recording(tmp_path, **changes)
    report = once(tmp_path, NVML_RECORDING=str(recorded), LD_LIBRARY_PATH=str(nvml_library.parent))
    (card,) = report["cards"]
    assert not card["healthy"]
    assert problem in card["problems"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("xids", "problems"),
    [
        ("0 79", ["XID 79: it fell off the bus"]),
        ("0 13\n0 79\n0 79\n0 48", ["XID 79: it fell off the bus", "XID 48: a double bit error"]),
        ("0 31", []),  # an error of the program that used the card
        ("0 143", ["XID 143"]),
    ],
)
def test_a_card_is_sick_after_an_error_of_its_own(
    tmp_path: Path, once: Once, nvml_library: Path, xids: str, problems: list[str]
) -> None:
    recorded = nvml_recordings.recording(tmp_path)
    (tmp_path / "xids").write_text(xids)
    report = once(
        tmp_path,
        NVML_RECORDING=str(recorded),
        NVML_XIDS=str(tmp_path / "xids"),
        LD_LIBRARY_PATH=str(nvml_library.parent),
    )
    (card,) = report["cards"]
    assert card["healthy"] == (not problems)
    assert len(card["problems"]) == len(problems)
    assert all(map(str.startswith, card["problems"], problems))


@pytest.mark.slow
def test_a_card_that_supports_nothing_has_no_invented_figures(
    tmp_path: Path, once: Once, nvml_library: Path
) -> None:
    denied = {
        name: nvml_recordings.NOT_SUPPORTED
        for name in nvml_recordings.H100
        if name not in ("nvmlSystemGetDriverVersion", "nvmlDeviceGetUUID", "nvmlDeviceGetName")
    }
    recorded = nvml_recordings.recording(tmp_path, **denied)
    report = once(tmp_path, NVML_RECORDING=str(recorded), LD_LIBRARY_PATH=str(nvml_library.parent))
    (card,) = report["cards"]
    assert card["power_limited_s"] is card["heat_limited_s"] is None
    assert report["readings"] == report["caps"] == []
    assert "neither a power sensor nor a counter" in missing(report)[f"nvml {card['uuid']}"]


@pytest.mark.slow
def test_a_card_says_for_how_long_power_and_heat_slowed_it_down(
    tmp_path: Path, once: Once, nvml_library: Path
) -> None:
    counts = {
        "NVML_FI_DEV_PERF_POLICY_POWER": {"ret": 0, "type": 3, "u": 12_500_000_000},
        "NVML_FI_DEV_PERF_POLICY_THERMAL": {"ret": 0, "type": 3, "u": 0},
    }
    recorded = nvml_recordings.recording(tmp_path, fields=counts)
    report = once(tmp_path, NVML_RECORDING=str(recorded), LD_LIBRARY_PATH=str(nvml_library.parent))
    (card,) = report["cards"]
    assert (card["power_limited_s"], card["heat_limited_s"]) == (12.5, 0.0)


@pytest.mark.slow
def test_a_library_below_the_root_of_the_host_is_found(
    tmp_path: Path, once: Once, nvml_library: Path
) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / nvml_library.name).write_bytes(nvml_library.read_bytes())
    (folder / nvml_library.name).chmod(stat.S_IRWXU)
    recorded = nvml_recordings.recording(tmp_path)
    assert once(tmp_path, NVML_RECORDING=str(recorded))["cards"]
