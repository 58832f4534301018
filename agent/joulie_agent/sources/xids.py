"""Errors that the driver of NVIDIA reports of its cards (XIDs), while NVML is open."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

# Errors of the program that uses the card, which is well: the list of NVIDIA's device plugin.
OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
KNOWN = {
    48: "a double bit error of its memory",
    62: "its microcontroller halted",
    64: "a faulty memory row could not be recorded",
    74: "an error of NVLink",
    79: "it fell off the bus",
    95: "an uncontained memory error",
    119: "its system processor (GSP) does not answer",
    120: "its system processor (GSP) failed",
}
_MOST = 100  # errors that are read at once

Nvml = Any
Handle = Any


class Errors(NamedTuple):
    """What NVML delivers errors to. It begins when NVML is opened: earlier errors are not known."""

    api: Nvml
    events: Any
    of_card: dict[str, list[int]]  # errors of the card itself, by its UUID

    def of(self, uuid: str) -> list[str]:
        self._receive()
        return [_text(xid) for xid in self.of_card.get(uuid, ())]

    def _receive(self) -> None:
        """An error is delivered once, so it is kept: until the agent or the driver restarts."""
        for _ in range(_MOST):
            try:
                found = self.api.nvmlEventSetWait_v2(self.events, 0)
            except self.api.NVMLError:  # none is waiting
                return
            with suppress(self.api.NVMLError):  # a lost card has no UUID, and is sick without this
                self._keep(str(self.api.nvmlDeviceGetUUID(found.device)), int(found.eventData))

    def _keep(self, uuid: str, xid: int) -> None:
        known = self.of_card.setdefault(uuid, [])
        if xid not in OF_PROGRAMS and xid not in known:
            known.append(xid)


def errors_of(api: Nvml, cards: Iterable[Handle]) -> Errors | None:
    """None where the driver reports none, as in many virtual machines."""
    try:
        events = api.nvmlEventSetCreate()
    except api.NVMLError:
        return None
    for card in cards:
        with suppress(api.NVMLError):
            api.nvmlDeviceRegisterEvents(card, api.nvmlEventTypeXidCriticalError, events)
    return Errors(api, events, {})


def _text(xid: int) -> str:
    return f"XID {xid}: {KNOWN[xid]}" if xid in KNOWN else f"XID {xid}"
