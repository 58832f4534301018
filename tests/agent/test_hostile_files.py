"""Files below /sys, /proc and the kubelet's folders that hold what no kernel writes: the agent
reads on, blocks on nothing, and what it publishes is within the bounds of events."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import host_trees
from bus_kit import power
from joulie_agent.inventory import uids_of_pods
from joulie_agent.sources import cgroups
from joulie_agent.sources.host import MOST_FOLDERS, Host, Unreadable
from joulie_bus.events import AnyEvent, codec
from joulie_bus.streams.subjects import Stream
from one_agent import OneAgent

pytestmark = pytest.mark.anyio
UID = "0b6f3c1e-1111-4222-8333-0123456789ab"
POD = f"sys/fs/cgroup/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
MOST_S = 30.0  # on a busy machine; what is not bounded does not end at all
Attack = Callable[[Path], None]


def contents(data: bytes) -> Attack:
    def write(file: Path) -> None:
        file.write_bytes(data)

    return write


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def gone(file: Path) -> None:
    file.unlink()


def device_without_end(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def circle(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def link_out_of_the_tree(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def huge(file: Path) -> None:
    """64 MiB without a block on the disk."""
    os.truncate(file, 64 << 20)


ATTACKS: dict[str, Attack] = {
    "a pipe": pipe,
    "a folder": folder,
    "nothing": gone,
    "a device without an end": device_without_end,
    "a link to itself": circle,
    "a link out of the tree": link_out_of_the_tree,
    "64 MiB": huge,
    "empty": contents(b""),
    "a negative number": contents(b"-5000000\n"),
    "a number of 63 bits": contents(b"9223372036854775807\n"),
    "a number of 4,000 digits": contents(b"9" * 4000),
    "no number": contents(b"NaN\n"),
    "another digit": contents("²\n".encode()),
    "digits of another script": contents("١٢٣\n".encode()),
    "no UTF-8": contents(b"\xff\xfe\x00\xd8"),
    "control characters": contents(b"a\nb\x1b[2J\x07\n"),
    "a long line": contents(b"x" * 300_000),
    "spaces": contents(b" " * 300_000 + b"x\n"),
    "numbers without an end": contents(b"cpu " + b"9" * 30 + b" 1" * 100_000),
}


def tree(root: Path) -> Path:
    host_trees.instinct(host_trees.xeon(root))
    host_trees.sensor(root, 0, "power_meter", {"power1_average": 300_000_000})
    host_trees.sensor(root, 1, "amd_energy", {"energy1_input": 5, "energy1_label": "Esocket0"})
    ticks = "cpu 100 0 100 800 0 0 0 0 0 0"
    host_trees.write(root, {"proc/stat": ticks, f"{POD}/cpu.stat": "usage_usec 1500"})
    (root / "var/log/pods" / f"team_a_{UID}").mkdir(parents=True)
    return root


FILES = (
    *("proc/stat", "proc/cpuinfo", "proc/meminfo", f"{POD}/cpu.stat"),
    *("sys/class/dmi/id/sys_vendor", "sys/module/amdgpu/version"),
    *(f"sys/class/powercap/intel-rapl:0/{name}" for name in ("name", "energy_uj")),
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
    *(f"sys/class/powercap/intel-rapl:0/constraint_0_{name}" for name in ("name", "max_power_uw")),
    *(f"sys/class/hwmon/hwmon0/{name}" for name in ("name", "power1_average")),
    *(f"sys/class/hwmon/hwmon1/{name}" for name in ("energy1_input", "energy1_label")),
    *(
        f"sys/class/drm/card0/device/{name}"
        for name in (
            *("vendor", "unique_id", "product_name", "uevent", "numa_node", "ras/umc_err_count"),
            *("mem_info_vram_total", "mem_info_vram_used", "xgmi_hive_info/xgmi_hive_id"),
            *("hwmon/hwmon4/power1_average", "hwmon/hwmon4/power1_cap_max"),
            "hwmon/hwmon4/power1_cap_min",
        )
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_an_agent_reads_on_and_publishes_what_is_within_bounds(
    attack: Attack, tmp_path: Path
) -> None:
    for number, name in enumerate(FILES):
        root = tree(tmp_path / f"{number}" / "host")
        attack(root / name)
        began = time.monotonic()
        published = await samples_of(root)
        assert time.monotonic() - began < MOST_S, name
        assert {event.TYPE for event in published} >= {"inventory.read"}, name
        shutil.rmtree(tmp_path / f"{number}")


async def samples_of(root: Path) -> list[AnyEvent]:
    node = OneAgent(root)
    for _ in range(3):
        node.clock.now_s += 12
        await node.sample()
    assert not node.delivery.waits
    newest = (await node.log.state(Stream.TEL)).last
    found = [await node.log.message(Stream.TEL, number + 1) for number in range(newest)]
    return [codec.decoded(record.data, "the test") for record in found if record]


def test_a_pipe_that_nobody_writes_to_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "energy_uj")
    with pytest.raises(Unreadable, match="/energy_uj: it is no regular file"):
        Host(tmp_path).text(tmp_path / "energy_uj")


def test_a_file_beyond_the_bound_is_not_read_in_part(tmp_path: Path) -> None:
    """Half of /proc/cpuinfo would be a machine with half of its processors."""
    huge(host_trees.write(tmp_path, {"x": 1}) / "x")
    with pytest.raises(Unreadable, match="/x: it has more than 16 MiB"):
        Host(tmp_path).text(tmp_path / "x")


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../secret"])
def test_a_link_that_leads_out_of_the_host_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("1")
    link = tmp_path / "host/sys/class/energy_uj"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(Unreadable, match="/sys/class/energy_uj: it leads out of"):
        Host(tmp_path / "host").text(link)


def test_a_link_within_the_host_is_followed(tmp_path: Path) -> None:
    host_trees.write(tmp_path, {"sys/devices/x": 5})
    (tmp_path / "sys/class").mkdir()
    (tmp_path / "sys/class/x").symlink_to("../devices/x")
    assert Host(tmp_path).integer(tmp_path / "sys/class/x") == 5


def test_of_a_hundred_thousand_groups_a_bounded_number_is_listed(tmp_path: Path) -> None:
    root = tmp_path / "sys/fs/cgroup/kubepods"
    root.mkdir(parents=True)
    for number in range(MOST_FOLDERS + 1000):
        (root / f"pod{number:08x}-0000-4000-8000-000000000000").mkdir()
    assert len(cgroups.pod_groups(Host(tmp_path))) == MOST_FOLDERS


def test_a_deep_tree_of_groups_is_left_at_its_fifth_level(tmp_path: Path) -> None:
    deep = Path("sys/fs/cgroup", *["kubepods"] * 200)
    host_trees.write(tmp_path, {f"{deep}/pod{UID}/cpu.stat": "usage_usec 1"})
    assert cgroups.pod_groups(Host(tmp_path)) == {}


def test_a_group_that_links_to_one_above_it_ends(tmp_path: Path) -> None:
    root = tmp_path / "sys/fs/cgroup/kubepods"
    root.mkdir(parents=True)
    for name in range(50):
        (root / f"kube{name}").symlink_to(root, target_is_directory=True)
    began = time.monotonic()
    assert cgroups.pod_groups(Host(tmp_path)) == {}
    assert time.monotonic() - began < MOST_S


def test_names_of_groups_that_are_no_pods_are_left_out(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "sys/fs/cgroup/kubepods")
    os.makedirs(root)
    for name in (b"pod\xff\xfe", f"pod{UID}\n".encode(), f"pod{UID.upper()}".encode(), b"pod"):
        os.mkdir(root + b"/" + name)
    assert cgroups.pod_groups(Host(tmp_path)) == {}


def test_folders_of_logs_whose_names_no_kubelet_makes_give_no_uid(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "var/log/pods")
    os.makedirs(root)
    for name in (
        b"team_a_\xff",
        b"team_a_u\n1",
        b"Team_a_u1",
        b"team_a\x1b_u1",
        b"team_a_" + b"u" * 200,
    ):
        os.mkdir(root + b"/" + name)
    assert uids_of_pods(Host(tmp_path)) == {}


async def test_a_reading_that_no_event_can_hold_keeps_no_other_waiting(tmp_path: Path) -> None:
    node = OneAgent(tmp_path)
    node.delivery.put(power("n1", 2.0**50))
    node.delivery.put(power("n1", 200.0))
    await node.delivery.deliver()
    assert not node.delivery.waits
    assert (await node.log.state(Stream.TEL)).last == 1
