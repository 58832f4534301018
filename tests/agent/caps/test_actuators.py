"""Limits of fake trees, and of a recorded card through NVIDIA's own binding."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import host_trees
import nvml_recordings
from joulie_agent.caps.actuators import actuators
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.writer import Order, Writer
from joulie_agent.sources.host import Host

CARD = """
import json, sys
from pathlib import Path
from joulie_agent.caps.actuators import actuators
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.writer import Order, Writer
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import Library

library = Library.open()
watts = int(sys.argv[2]) if sys.argv[2] else None
order = Order(gpu_mw=watts * 1000 if watts else None)
found = list(actuators(Host(Path(sys.argv[1])), library))
done = Writer(Memory(Path(sys.argv[3]))).carry_out(order, found)
print(json.dumps([list(outcome) for outcome in done]))
"""


def test_both_packages_get_the_cap_and_their_old_limit_back(tmp_path: Path) -> None:
    host = Host(host_trees.xeon(tmp_path))
    writer = Writer(Memory(tmp_path / "limits.json"))
    done = writer.carry_out(Order(cpu_uw=210_000_000), list(actuators(host, None)))
    file = tmp_path / "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw"
    assert [outcome.name for outcome in done] == ["rapl/package-0", "rapl/package-1"]
    assert file.read_text() == "210000000"
    writer.release(list(actuators(host, None)))
    assert file.read_text() == "350000000"


def test_a_cap_above_the_highest_limit_is_the_highest_limit(tmp_path: Path) -> None:
    host = Host(host_trees.xeon(tmp_path))
    host_trees.rapl_limit(tmp_path, "intel-rapl:0", 300, 350)
    writer = Writer(Memory(tmp_path / "limits.json"))
    first, _ = writer.carry_out(Order(cpu_uw=400_000_000), list(actuators(host, None)))
    assert first.value == 350_000_000


def test_a_limit_that_cannot_be_written_is_named_without_a_try(tmp_path: Path) -> None:
    host = Host(host_trees.xeon(tmp_path))
    writer = Writer(Memory(tmp_path / "limits.json"))
    file = tmp_path / "sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw"
    before, obstacles = file.read_text(), writer.obstacles(list(actuators(host, None)))
    assert file.read_text() == before
    file.unlink()
    file.mkdir()  # as little to be written as a file on a read-only mount, also for root
    assert obstacles == {"rapl/package-0": "", "rapl/package-1": ""}
    after = writer.obstacles(list(actuators(host, None)))
    assert after["rapl/package-0"] == ""
    assert "constraint_0_power_limit_uw" in after["rapl/package-1"]


@pytest.mark.slow
def test_a_recorded_card_takes_a_limit_and_gives_it_back(
    tmp_path: Path, nvml_library: Path
) -> None:
    environ = {
        "NVML_RECORDING": str(nvml_recordings.recording(tmp_path)),
        "LD_LIBRARY_PATH": str(nvml_library.parent),
        "NVML_STATE": str(tmp_path / "state"),
    }

    def carried_out(watts: str) -> list[list[object]]:
        words = [sys.executable, "-c", CARD, str(tmp_path), watts, str(tmp_path / "limits.json")]
        done = subprocess.run(words, env=environ, capture_output=True, check=True, timeout=60)
        outcomes: list[list[object]] = json.loads(done.stdout)
        return outcomes

    uuid = "GPU-00000000-1111-2222-3333-444444444444"
    assert carried_out("400") == [[f"nvml/{uuid}", "gpu", 400_000, "", uuid]]
    assert carried_out("") == [[f"nvml/{uuid}", "gpu", 700_000, "", uuid]]
