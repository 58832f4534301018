"""The energy of pods: by processor time, and by the cards that they have."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import host_trees
from bus_kit import hardware
from joulie_agent.inventory import devices_of
from joulie_agent.measure.pods import Devices, Energy, Used, shares_uj
from joulie_agent.pods import PodMeter
from joulie_agent.sources import cgroups
from joulie_agent.sources.host import Host
from joulie_bus.events import CardRead, InventoryRead
from joulie_bus.metering.meters import Meter, Part

A, B = "0b6f3c1e-1111-4222-8333-0123456789ab", "5b1f3c1e-1111-4222-8333-0123456789ab"
STATIC = "0123456789abcdef0123456789abcdef"
WHOLE = frozenset({Meter("rapl", "package-0", Part.PACKAGE)})
V2 = "sys/fs/cgroup/kubepods.slice/"
KIND = "sys/fs/cgroup/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"


def under(uid: str) -> str:
    return uid.replace("-", "_")


@pytest.mark.parametrize(
    "folder",
    [
        f"{V2}kubepods-pod{under(A)}.slice",
        f"{V2}kubepods-besteffort.slice/kubepods-besteffort-pod{under(A)}.slice",
        f"{KIND}kubelet-kubepods-burstable-pod{under(A)}.slice",
        f"sys/fs/cgroup/kubepods/burstable/pod{A}",
    ],
)
def test_groups_of_version_2_have_the_processor_time_of_their_pods(
    tmp_path: Path, folder: str
) -> None:
    stat = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500"
    host = Host(host_trees.write(tmp_path, {f"{folder}/cpu.stat": stat}))
    (group,) = cgroups.pod_groups(host).items()
    assert (group[0], cgroups.used_ns(host, group[1])) == (A, 1_500_000)


@pytest.mark.parametrize("controller", ["cpuacct", "cpu,cpuacct"])
def test_groups_of_version_1_have_it_in_nanoseconds(tmp_path: Path, controller: str) -> None:
    root = f"sys/fs/cgroup/{controller}/kubepods/besteffort"
    host = Host(
        host_trees.write(
            tmp_path,
            {
                f"{root}/pod{A}/cpuacct.usage": 1_500_001,
                f"{root}/pod{A}/abc/cpuacct.usage": 7,
                f"{root}/pod{STATIC}/cpuacct.usage": 5,
                "sys/fs/cgroup/memory/kubepods/besteffort/x/y": 1,
            },
        )
    )
    found = {uid: cgroups.used_ns(host, at) for uid, at in cgroups.pod_groups(host).items()}
    assert found == {A: 1_500_001, STATIC: 5}


def test_other_groups_are_no_pods(tmp_path: Path) -> None:
    host_trees.write(tmp_path, {f"sys/fs/cgroup/system.slice/pod{A}/cpu.stat": "usage_usec 1"})
    assert cgroups.pod_groups(Host(tmp_path)) == {}


def test_pods_share_what_processors_use_above_idle_by_their_time() -> None:
    """Half of the time is busy: a third of the power is above idle. The system used a part."""
    used = Used(10.0, 3_000.0, 0.5, 100.0, {A: 60, B: 20})
    assert shares_uj(used) == {A: 600.0, B: 200.0}


def test_a_card_that_two_pods_share_in_time_counts_half_for_each() -> None:
    """Of 700 W at most, 70 W are idle."""
    used = Used(
        10.0, 0.0, 0.0, 0.0, {A: 0, B: 0}, {"x": 3_700_000_000, "y": 900}, 700_000.0, {"x": (A, B)}
    )
    assert shares_uj(used) == {A: 1_500_000_000, B: 1_500_000_000}


NONE = Devices()


class Node:
    """One pod at half of two processors, and another one at a tenth, if the test says so."""

    def __init__(self, root: Path) -> None:
        self.root, self.meter = root, PodMeter(Host(root))
        self.at_s, self.ticks, self.energy_uj = 0.0, 0, 0
        self.used = {A: 0, B: 0}

    def ten_seconds(
        self, shares: Mapping[str, float], devices: Devices = NONE, watts: int = 300
    ) -> dict[str, int]:
        self.at_s += 10
        self.ticks += round(2000 * sum(shares.values()))
        self.energy_uj += watts * 10_000_000
        idle = round(self.at_s * 200) - self.ticks
        files: dict[str, str | int] = {"proc/stat": f"cpu {self.ticks} 0 0 {idle} 0 0 0 0 0 0"}
        for uid, share in shares.items():
            self.used[uid] += round(20_000_000 * share)
            folder = f"{V2}kubepods-pod{under(uid)}.slice"
            files[f"{folder}/cpu.stat"] = f"usage_usec {self.used[uid]}"
        host_trees.write(self.root, files)
        self.meter.observe(self.at_s, Energy(self.energy_uj, {}, WHOLE), devices)
        return self.meter.totals_uj()


def test_pods_of_a_node_are_counted_from_their_groups(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.ten_seconds({A: 0.5, B: 0.1}) == {}
    found = node.ten_seconds({A: 0.5, B: 0.1})
    above_uj = 3_000_000_000 * 0.6 / 1.6
    assert found == {A: round(above_uj * 5 / 6), B: round(above_uj / 6)}


def test_a_new_pod_has_all_of_its_time_and_one_that_ended_is_left_out(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ten_seconds({A: 0.5})
    assert node.ten_seconds({A: 0.5, B: 0.5})[B] > 0
    for file in tmp_path.glob(f"{V2}kubepods-pod{under(B)}.slice/*"):
        file.unlink()
    (tmp_path / f"{V2}kubepods-pod{under(B)}.slice").rmdir()
    assert node.ten_seconds({A: 0.5}).keys() == {A}


def test_a_pod_with_a_part_of_a_card_is_not_metered(tmp_path: Path) -> None:
    node, parts = Node(tmp_path), Devices(unmetered=frozenset({B}))
    node.ten_seconds({A: 0.5, B: 0.5}, parts)
    assert node.ten_seconds({A: 0.5, B: 0.5}, parts).keys() == {A}


def test_another_sum_of_meters_is_no_energy_of_pods(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ten_seconds({A: 0.5})
    node.meter.observe(20.0, Energy(10**12, {}, frozenset()), Devices())
    assert node.meter.totals_uj() == {}


@given(
    st.floats(0, 1e12),
    st.floats(0, 1),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**12)),
    st.dictionaries(st.sampled_from("xyz"), st.floats(0, 1e12)),
    st.dictionaries(st.sampled_from("xyz"), st.lists(st.sampled_from("abcdef"), unique=True)),
)
def test_pods_never_have_more_than_their_node(
    rest_uj: float,
    busy: float,
    pod_ns: Mapping[str, int],
    card_uj: Mapping[str, float],
    holders: Mapping[str, Sequence[str]],
) -> None:
    used = Used(10.0, rest_uj, busy, busy * 1e11, pod_ns, card_uj, 700_000.0, holders)
    shares = shares_uj(used)
    assert all(uj >= 0 for uj in shares.values())
    assert sum(shares.values()) <= (rest_uj + sum(card_uj.values())) * 1.000001


def test_a_card_has_all_of_its_pods_and_parts_of_cards_have_no_meter() -> None:
    found = InventoryRead(
        node="n1",
        hardware=replace(hardware("n1", gpus=1), gpu_max_mw=700_000),
        cards=(CardRead(uuid="GPU-1", model="m", total_mb=1),),
    )
    pods = {"GPU-1": ["team/a", "team/b"], "MIG-7": ["team/c"], "vfio0": ["team/a"]}
    devices = devices_of(found, pods, {"team/a": "a", "team/b": "b", "team/c": "c"})
    assert devices == Devices({"GPU-1": ("a", "b")}, 700_000, frozenset({"c"}))
