"""Locked clocks of a recorded card, through NVIDIA's own binding. Each call is a life of a writer
that is killed when it has carried out its order."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import nvml_recordings

LIFE = """
import json, sys
from pathlib import Path
from joulie_agent.caps.clocks import Locks
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.release import all_limits
from joulie_agent.caps.service import facts_of
from joulie_agent.caps.writer import Order, Writer
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import Library

library, memory = Library.open(), Memory(Path(sys.argv[2]))
locks, writer = Locks(memory), Writer(memory)
for ordered in sys.argv[3:]:
    order = Order(clock_pct=int(ordered) if ordered != "none" else None)
    found = all_limits(Host(Path(sys.argv[1])), library, locks)
    done = writer.carry_out(order, found)
applied, refused = facts_of("n1", None, order, done)
print(json.dumps([applied.clock_mhz, refused.because if refused else "", writer.obstacles(found)]))
"""
UUID = "GPU-00000000-1111-2222-3333-444444444444"
NAME = f"clocks/{UUID}"
pytestmark = pytest.mark.slow


class Card:
    """A recorded card, the state of its driver, and the memory of the writers."""

    def __init__(self, folder: Path, library: Path, **recorded: object) -> None:
        self.folder, self._library = folder, library
        self._recording = nvml_recordings.recording(folder, **recorded)
        self.driver, self.memory = folder / "state", folder / "limits.json"

    def life(self, *orders: int | None) -> tuple[int | None, str, dict[str, str]]:
        told: Sequence[str] = ["none" if each is None else str(each) for each in orders]
        done = subprocess.run(
            [sys.executable, "-c", LIFE, str(self.folder), str(self.memory), *told],
            env={
                "NVML_RECORDING": str(self._recording),
                "LD_LIBRARY_PATH": str(self._library.parent),
                "NVML_STATE": str(self.driver),
            },
            capture_output=True,
            check=True,
            timeout=60,
        )
        clock, refused, obstacles = json.loads(done.stdout)
        return clock, refused, obstacles

    def lock(self) -> list[int]:
        """The lowest and the highest clock that the driver allows; 0 for no lock."""
        return [int(each) for each in self.driver.read_text().split()[2:4]]

    def noted(self) -> dict[str, object]:
        limits: dict[str, object] = json.loads(self.memory.read_text())["limits"]
        return limits


@pytest.fixture
def busy(tmp_path: Path, nvml_library: Path) -> Card:
    """It runs as fast as it may."""
    return Card(tmp_path, nvml_library, clock0=1980)


def test_clocks_are_locked_to_one_that_the_card_supports_and_given_back(busy: Card) -> None:
    clock, refused, _ = busy.life(60)
    assert (clock, refused, busy.lock()) == (1185, "", [210, 1185])  # 60 % of 1,980 are 1,188
    assert busy.noted() == {NAME: {"before": 1980, "ours": [1185]}}
    clock, refused, _ = busy.life(None)
    assert (clock, refused, busy.lock(), busy.noted()) == (None, "", [0, 0], {})


def test_a_lock_below_the_lowest_clock_is_the_lowest_one(busy: Card) -> None:
    assert busy.life(1)[0] == 210


def test_an_order_changes_a_lock_up_and_down(busy: Card) -> None:
    assert busy.life(60, 50, 80)[0] == 1575
    assert busy.life(40)[0] == 780
    assert busy.lock() == [210, 780]


def test_a_lock_that_the_driver_has_lost_is_set_again(busy: Card) -> None:
    busy.life(60)
    busy.driver.unlink()  # the node was started again
    assert busy.life(60)[0] == 1185
    assert busy.lock() == [210, 1185]


def test_the_next_life_gives_back_the_lock_of_one_that_was_killed_also_on_an_idle_card(
    tmp_path: Path, nvml_library: Path
) -> None:
    """Its clock of 345 MHz shows no lock."""
    idle = Card(tmp_path, nvml_library)
    idle.life(60)
    assert idle.lock() == [210, 1185]
    idle.life(None)
    assert (idle.lock(), idle.noted()) == ([0, 0], {})


def test_a_card_that_takes_no_lock_is_refused_by_name(tmp_path: Path, nvml_library: Path) -> None:
    card = Card(tmp_path, nvml_library, clock0=1980)
    card.driver = tmp_path / "no such folder" / "state"
    clock, refused, _ = card.life(60)
    assert clock is None
    assert refused.startswith(f"{NAME}: card {UUID}: ")
    assert "Permission" in refused


def test_a_card_that_does_not_say_its_clocks_is_never_locked(
    tmp_path: Path, nvml_library: Path
) -> None:
    unknown = nvml_recordings.NOT_SUPPORTED
    card = Card(tmp_path, nvml_library, nvmlDeviceGetSupportedMemoryClocks=unknown)
    clock, refused, obstacles = card.life(60)
    assert (clock, refused) == (None, "the cards of this node have no clocks that can be locked")
    assert NAME not in obstacles


def test_without_an_order_no_clock_is_touched(busy: Card) -> None:
    busy.life(None)
    assert not busy.driver.exists()
