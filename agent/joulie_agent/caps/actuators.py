"""Limits of the hardware that can be set: RAPL's power limit, NVML's power limit, locked clocks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from joulie_agent.caps.rules import Limit
from joulie_agent.sources import powercap
from joulie_agent.sources.host import Host, Unreadable
from joulie_agent.sources.nvml import Device, Library

GRAIN_UW = 500_000  # RAPL counts in eighths of a watt


class NotSet(Exception):
    """The hardware refused the value, with the reason."""


class Actuator(Protocol):
    """One limit. `name` is stable over restarts; `kind` is cpu, gpu or clocks."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def card(self) -> str: ...  # its uuid; empty for processors
    def read(self) -> Limit: ...  # raises Unreadable
    def value_of(self, ordered: int) -> int: ...  # what an order means here, in its own unit
    def problem(self) -> str: ...  # why it cannot be set, as far as that shows without setting it
    def set(self, value: int) -> None: ...  # raises NotSet


class RaplLimit(NamedTuple):
    """The long-term power limit of one package, in microwatts."""

    host: Host
    component: str
    file: Path
    kind: str = "cpu"
    card: str = ""

    @property
    def name(self) -> str:
        return f"rapl/{self.component}"

    def read(self) -> Limit:
        """The kernel names the highest limit, and neither the lowest one nor a default."""
        high = self.host.maybe_count(
            self.file.with_name(self.file.name.replace("power_limit", "max_power"))
        )
        return Limit(self.host.count(self.file), high=high or None, grain=GRAIN_UW)

    def value_of(self, ordered: int) -> int:
        return ordered

    def problem(self) -> str:
        """The kernel sets nothing before something is written."""
        try:
            os.close(os.open(self.file, os.O_WRONLY))
        except OSError as error:
            return f"{self.host.path_on_host(self.file)}: {error.strerror}"
        return ""

    def set(self, value: int) -> None:
        try:
            self.file.write_text(str(value))
        except OSError as error:
            raise NotSet(f"{self.host.path_on_host(self.file)}: {error.strerror}") from error


class NvmlLimit(NamedTuple):
    """The power limit of one card, in milliwatts."""

    library: Library
    device: Device
    kind: str = "gpu"

    @property
    def name(self) -> str:
        return f"nvml/{self.device.uuid}"

    @property
    def card(self) -> str:
        return self.device.uuid

    def read(self) -> Limit:
        ask, handle = self.library.ask, self.device.handle
        now = ask("nvmlDeviceGetPowerManagementLimit", handle)
        if now is None:
            raise Unreadable(f"card {self.device.uuid}: NVML gives no power limit")
        span = ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
        default = ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)
        low, high = span if span is not None else (None, None)
        return Limit(now, low, high, default)

    def value_of(self, ordered: int) -> int:
        return ordered

    def problem(self) -> str:
        """The driver lets root alone set it, and has no question that asks for the permission."""
        return "" if os.geteuid() == 0 else f"card {self.device.uuid}: only root may set its limit"

    def set(self, value: int) -> None:
        api = self.library.api
        try:
            api.nvmlDeviceSetPowerManagementLimit(self.device.handle, value)
        except api.NVMLError as error:
            raise NotSet(f"card {self.device.uuid}: {error}") from error


def actuators(host: Host, library: Library | None) -> Iterator[Actuator]:
    """The limits of this node that can be set."""
    for domain in powercap.domains(host):
        if domain.kind == "package" and (file := powercap.limit_file(host, domain)):
            yield RaplLimit(host, domain.name, file)
    for device in library.devices if library else ():
        if library and library.ask("nvmlDeviceGetPowerManagementLimit", device.handle) is not None:
            yield NvmlLimit(library, device)
