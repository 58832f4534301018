"""The highest clock to which a card is locked.

NVML can lock clocks and has no question for the lock. What the writer knows is what it set, and the
clock at which the card runs: one above the lock shows that the lock is not in force any more, after
a reset of the driver or by another program. A lock of another program cannot be seen while the card
runs below it.
"""

import os
import time
from typing import NamedTuple

from joulie_agent.caps.actuators import NotSet
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.rules import Limit
from joulie_agent.sources.host import Unreadable
from joulie_agent.sources.nvml import Device, Library

GRAPHICS = 0  # NVML_CLOCK_GRAPHICS
STEP_MHZ = 30  # two steps of the clock: a card may run a little above its lock
SHOWS_S, LOOK_S = 0.5, 0.02  # until the clock shows a new lock


class Locks:
    """The locks that are in force, as far as this program knows: what it set, or what an earlier
    life noted."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._set: dict[str, int] = {}
        self._supported: dict[str, list[int]] = {}

    def supported(self, library: Library, device: Device) -> list[int]:
        """The clocks that a card accepts; empty where it does not say. They never change."""
        if device.uuid not in self._supported:
            ask, handle = library.ask, device.handle
            memory = max(ask("nvmlDeviceGetSupportedMemoryClocks", handle) or (), default=0)
            clocks = ask("nvmlDeviceGetSupportedGraphicsClocks", handle, memory) if memory else ()
            self._supported[device.uuid] = [int(clock) for clock in clocks or ()]
        return self._supported[device.uuid]

    def of(self, name: str) -> int | None:
        if name in self._set:
            return self._set[name]
        known = self._memory.get(name)
        return max(known.ours, default=None) if known is not None else None

    def note(self, name: str, mhz: int | None) -> None:
        if mhz is None:
            self._set.pop(name, None)
        else:
            self._set[name] = mhz


class ClockLock(NamedTuple):
    """The locked clock of one card, in MHz; the highest clock stands for no lock."""

    library: Library
    device: Device
    locks: Locks
    kind: str = "clocks"

    @property
    def name(self) -> str:
        return f"clocks/{self.device.uuid}"

    @property
    def card(self) -> str:
        return self.device.uuid

    def value_of(self, ordered: int) -> int:
        """The highest clock that the card supports within these per cent of its maximum."""
        most, supported = self._highest() * ordered // 100, self._supported()
        return max((clock for clock in supported if clock <= most), default=min(supported))

    def read(self) -> Limit:
        high, held = self._highest(), self.locks.of(self.name)
        is_in_force = held is not None and not self._runs_above(held)
        return Limit(held if held is not None and is_in_force else high, high=high, default=high)

    def problem(self) -> str:
        """The driver lets root alone lock clocks, and has no question that asks for it."""
        is_root = os.geteuid() == 0
        return "" if is_root else f"card {self.device.uuid}: only root may lock its clocks"

    def set(self, value: int) -> None:
        api, handle = self.library.api, self.device.handle
        try:
            if value >= self._highest():
                api.nvmlDeviceResetGpuLockedClocks(handle)
                self.locks.note(self.name, None)
            else:
                api.nvmlDeviceSetGpuLockedClocks(handle, min(self._supported()), value)
                self.locks.note(self.name, value)
                self._wait(value)
        except api.NVMLError as error:
            raise NotSet(f"card {self.device.uuid}: {error}") from error

    def _wait(self, mhz: int) -> None:
        until_s = time.monotonic() + SHOWS_S
        while self._runs_above(mhz) and time.monotonic() < until_s:
            time.sleep(LOOK_S)

    def _runs_above(self, mhz: int) -> bool:
        now = self.library.ask("nvmlDeviceGetClockInfo", self.device.handle, GRAPHICS)
        return now is not None and now > mhz + STEP_MHZ

    def _highest(self) -> int:
        found = self.library.ask("nvmlDeviceGetMaxClockInfo", self.device.handle, GRAPHICS)
        if found is None:
            raise Unreadable(f"card {self.device.uuid}: NVML gives no highest clock")
        return int(found)

    def _supported(self) -> list[int]:
        return self.locks.supported(self.library, self.device)


def clock_locks(library: Library, locks: Locks) -> list[ClockLock]:
    """Of the cards that say which clocks they accept."""
    devices = (each for each in library.devices if locks.supported(library, each))
    return [ClockLock(library, device, locks) for device in devices]
