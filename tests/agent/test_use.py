"""What pods use: from recorded trees of control groups, and from real groups of this machine."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import host_trees
from joulie_agent.measure.use import LONGEST_S, PodSpells, Spell, line_of
from joulie_agent.sources import cgroups
from joulie_agent.sources.cgroups import NOT_COUNTED, Waited
from joulie_agent.sources.host import Host, Unreadable
from joulie_agent.use import UseMeter
from joulie_bus.events import PodsUsed, PodUse, codec, packed_uid, unpacked_uid
from joulie_bus.streams.subjects import Stream
from one_agent import OneAgent

A, B = "0b6f3c1e-1111-4222-8333-0123456789ab", "5b1f3c1e-1111-4222-8333-0123456789ab"
V2 = "sys/fs/cgroup/kubepods.slice/kubepods-pod{}.slice"
V1 = "sys/fs/cgroup/{}/kubepods/pod{}"
MIB = 1 << 20
UNIFIED = Path("/sys/fs/cgroup/unified")


def pressure(total_us: int | str) -> str:
    """As Linux writes it."""
    some = f"some avg10=1.25 avg60=0.40 avg300=0.10 total={total_us}"
    return f"{some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7"


def group_of_version_2(
    uid: str, cpu_s: float, mib: int, waited_us: Mapping[str, int]
) -> dict[str, str | int]:
    folder = V2.format(uid.replace("-", "_"))
    files: dict[str, str | int] = {
        f"{folder}/cpu.stat": f"usage_usec {round(cpu_s * 1e6)}\nuser_usec 1\nsystem_usec 1",
        f"{folder}/memory.current": (mib + 40) * MIB,
        f"{folder}/memory.stat": f"anon 1\nfile {50 * MIB}\ninactive_file {40 * MIB}\nslab 1",
    }
    return files | {f"{folder}/{name}.pressure": pressure(us) for name, us in waited_us.items()}


def group_of_version_1(uid: str, cpu_s: float, mib: int) -> dict[str, str | int]:
    memory = V1.format("memory", uid)
    return {
        f"{V1.format('cpu,cpuacct', uid)}/cpuacct.usage": round(cpu_s * 1e9),
        f"{memory}/memory.usage_in_bytes": (mib + 40) * MIB,
        f"{memory}/memory.stat": f"inactive_file 1\ntotal_inactive_file {40 * MIB}",
    }


class Node:
    """Pods that use so many cores and so much memory, in steps of ten seconds."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.root, self.version = root, version
        self.meter = UseMeter(Host(root), "n1")
        self.at_s = 0.0
        self.cpu_s: dict[str, float] = {}
        self.published: list[PodsUsed] = []

    def run(self, seconds: int, uses: Mapping[str, tuple[float, int]], waits: float = 0.0) -> None:
        for _ in range(seconds // 10):
            self.at_s += 10
            for uid, (cores, mib) in uses.items():
                self.cpu_s[uid] = self.cpu_s.get(uid, 0.0) + cores * 10
                waited_us = round(self.at_s * waits * 1e6)
                both = {"cpu": waited_us, "memory": 0, "io": waited_us // 2}
                files = (
                    group_of_version_2(uid, self.cpu_s[uid], mib, both)
                    if self.version == 2
                    else group_of_version_1(uid, self.cpu_s[uid], mib)
                )
                host_trees.write(self.root, files)
            if (found := self.meter.observe(self.at_s)) is not None:
                self.published.append(found)

    def end(self, uid: str) -> None:
        folder = self.root / V2.format(uid.replace("-", "_"))
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def lines(self, uid: str) -> list[tuple[int, int, int | None, int | None]]:
        return [
            (each.seconds, each.cpu_milli, each.memory_mib, each.peak_mib)
            for fact in self.published
            for each in fact.pods
            if unpacked_uid(each.pod) == uid
        ]


@pytest.mark.parametrize("version", [1, 2])
def test_the_working_set_has_no_cache_that_the_kernel_can_drop(
    tmp_path: Path, version: int
) -> None:
    files = group_of_version_2(A, 1, 100, {}) if version == 2 else group_of_version_1(A, 1, 100)
    host = Host(host_trees.write(tmp_path, files))
    (group,) = cgroups.pod_groups(host).values()

    assert cgroups.working_set(host, group) == 100 * MIB
    assert cgroups.is_of_version_1(group) is (version == 1)


def test_a_group_without_a_controller_of_memory_has_no_working_set(tmp_path: Path) -> None:
    host = Host(host_trees.write(tmp_path, {f"{V2.format('x')}/cpu.stat": "usage_usec 1"}))
    with pytest.raises(Unreadable):
        cgroups.working_set(host, tmp_path / V2.format("x"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7",
        pressure("9" * 19),
        pressure("-1"),
        pressure("many"),
        "\0" * 100,
    ],
)
def test_a_pressure_that_no_kernel_writes_is_not_counted(tmp_path: Path, content: str) -> None:
    host = Host(host_trees.write(tmp_path, {"g/cpu.pressure": content, "g/io.pressure": content}))
    assert cgroups.waited_us(host, tmp_path / "g") == Waited(*[NOT_COUNTED] * 3)


def test_a_steady_pod_is_one_line_each_ten_minutes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(1400, {A: (0.5, 100)}, waits=0.02)

    assert node.lines(A) == [(600, 500, 100, 100)] * 2
    assert {fact.source for fact in node.published} == {"cgroup-v2"}
    assert {(p.cpu_wait, p.memory_wait, p.io_wait) for f in node.published for p in f.pods} == {
        (20, 0, 10)
    }


def test_a_change_ends_the_line_so_that_no_peak_is_averaged_away(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(190, {A: (0.5, 100)})
    node.run(60, {A: (4.0, 900)})
    node.run(120, {A: (0.5, 100)})

    first, second, *_ = node.lines(A)
    assert first == (180, 500, 100, 100)
    assert (second[1], second[3]) == (4000, 900)


def test_a_pod_that_ended_is_published_with_what_is_known_of_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(130, {A: (0.5, 100), B: (1.0, 50)})
    node.end(B)
    node.run(60, {A: (0.5, 100)})

    assert node.lines(B) == [(120, 1000, 50, 50)]
    assert node.lines(A) == []


def test_groups_of_version_1_have_no_pressure(tmp_path: Path) -> None:
    node = Node(tmp_path, version=1)
    node.run(700, {A: (0.25, 64)})

    assert node.lines(A) == [(600, 250, 64, 64)]
    [fact] = node.published
    assert (fact.source, fact.pods[0].cpu_wait, fact.pods[0].memory_wait) == (
        "cgroup-v1",
        None,
        None,
    )


def test_a_pause_of_the_agent_is_no_minute(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(70, {A: (0.5, 100)})
    node.at_s += 3600
    node.run(10, {A: (0.5, 100)})

    assert node.lines(A) == [(60, 500, 100, 100)]


SPELLS = st.builds(
    Spell,
    st.floats(59, 61),
    st.integers(0, 10**12),
    st.none() | st.floats(0, 10_000),
    st.none() | st.integers(0, 10_000),
    st.tuples(*[st.none() | st.integers(0, 1000)] * 3),
)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), SPELLS)))
def test_spells_lose_no_processor_time_and_are_never_too_long(
    minutes: list[dict[str, Spell]],
) -> None:
    spells = PodSpells()
    found = [each for minute in [*minutes, {}] for each in spells.observe(minute).values()]

    given_ns = sum(each.cpu_ns for minute in minutes for each in minute.values())
    assert sum(each.cpu_ns for each in found) == given_ns
    assert all(each.seconds <= LONGEST_S for each in found)


def test_a_line_of_a_pod_has_at_most_40_bytes() -> None:
    large = Spell(600.0, 600 * 65_535 * 10**6, 65_000.0, 65_535, (1000, 1000, 1000))
    usual = Spell(60.0, 60 * 250 * 10**6, 512.0, 540, (12, 0, 3))

    sizes = [len(msgspec.msgpack.encode(line_of(packed_uid(A), each))) for each in (usual, large)]
    assert sizes == [31, 40]


@pytest.mark.parametrize("uid", [A, A.upper(), "0123456789abcdef0123456789abcdef", "sim-1", "ü"])
def test_a_packed_uid_is_unpacked_as_it_was(uid: str) -> None:
    assert unpacked_uid(packed_uid(uid)) == uid


def test_a_text_that_would_be_taken_for_a_uuid_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        packed_uid("0123456789abcdef")


def test_a_full_fact_fits_into_the_payload_of_an_agent() -> None:
    line = PodUse(b"x" * 16, 3600, 10**9, 2**33, 2**33, 1000, 1000, 1000)
    fact = PodsUsed(node="n" * 253, source="cgroup-v2", pods=(line,) * 1000)

    assert len(codec.encode(fact)) < 64 * 1024


@pytest.mark.anyio
async def test_the_agent_publishes_it_without_a_meter_of_power(tmp_path: Path) -> None:
    """A virtual machine has pods, too."""
    rig, cpu_s = OneAgent(tmp_path), 0.0
    for _ in range(72):
        rig.clock.now_s += 10
        cpu_s += 5
        host_trees.write(tmp_path, group_of_version_2(A, cpu_s, 100, {}))
        await rig.sample()

    newest = (await rig.log.state(Stream.TEL)).last
    found = [await rig.log.message(Stream.TEL, number + 1) for number in range(newest)]
    facts = [codec.decoded(record.data, "the test") for record in found if record]
    [used] = [fact for fact in facts if isinstance(fact, PodsUsed)]
    assert (used.node, [each.cpu_milli for each in used.pods]) == ("n1", [500])


BUSY = """
import os, time
os.sched_setaffinity(0, {0})
while time.process_time() < 0.5: pass
"""


@pytest.fixture
def real_group() -> Generator[Path, None, None]:
    group = UNIFIED / f"joulie-test-{uuid4()}"
    try:
        group.mkdir()
        (group / "cpu.pressure").read_text()
    except OSError as error:
        pytest.skip(f"no control group of version 2 with pressure can be made here: {error}")
    yield group
    group.rmdir()


def test_real_processes_that_contend_for_a_processor_wait_and_use_it(real_group: Path) -> None:
    """Of a group without a controller of memory, the working set is unknown."""
    host = Host(Path("/"))
    before = cgroups.waited_us(host, real_group), cgroups.used_ns(host, real_group)

    def join() -> None:
        (real_group / "cgroup.procs").write_text(str(os.getpid()))

    both = [subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=join) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]

    waited, used_ns = cgroups.waited_us(host, real_group), cgroups.used_ns(host, real_group)
    assert waited.cpu > before[0].cpu >= 0
    assert used_ns - before[1] >= 10**9
    with pytest.raises(Unreadable):
        cgroups.working_set(host, real_group)
