"""Reads the power of whole chassis from their BMCs: Redfish, or DCMI by ipmitool.

A BMC that does not answer, or answers anything else than a power, gives no reading.
"""

import asyncio
from collections.abc import Mapping, Sequence

from joulie_bus.runtime.logging import get_logger
from joulie_operator.controllers.controller_file import (
    Entry,
    IpmiEntry,
    RedfishEntry,
    controllers_of,
)
from joulie_operator.controllers.failure import ControllerFailed
from joulie_operator.controllers.kept_secrets import kept_secret
from joulie_operator.controllers.redfish_service import RedfishService, bounded
from joulie_operator.facts import chassis_power
from joulie_operator.facts.readings import Reading
from joulie_operator.facts.redfish_paths import ROOT, linked, members
from joulie_operator.programs import running
from joulie_operator.telemetry.bmc_connections import AT_ONCE, Connections
from joulie_projections.state.state import NodeState

MOST_CHASSIS = 16
OTHERS_COUNT_NS = 60_000_000_000  # a reading of another source counts for so long
log = get_logger("bmc")


class Bmcs:
    """The BMCs of the nodes, and why some of them have no reading."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._silent: dict[str, str] = {}
        self._connections = Connections()

    async def close(self) -> None:
        await self._connections.close()

    async def read(self, nodes: Mapping[str, NodeState], now_ns: int) -> dict[str, Reading]:
        """Of nodes that no other source measures."""
        wanted = controllers_of(self._entries, "reads", nodes)
        bmcs = {
            name: entry
            for name, entry in wanted.entries.items()
            if isinstance(entry, RedfishEntry | IpmiEntry)
            and not is_measured_elsewhere(nodes[name], now_ns)
        }
        silent, gate = dict(wanted.problems), asyncio.Semaphore(AT_ONCE)
        found = dict[str, Reading]()
        self._connections.begin([bmc.address for bmc in bmcs.values()], now_ns)

        async def one(name: str, bmc: RedfishEntry | IpmiEntry) -> None:
            async with gate:
                try:
                    found[name] = await chassis_reading(bmc, self._connections)
                except ControllerFailed as error:
                    self._connections.failed(bmc.address, now_ns)
                    silent[name] = str(error)

        await asyncio.gather(*(one(name, bmc) for name, bmc in bmcs.items()))
        self._report(silent)
        return found

    def _report(self, silent: dict[str, str]) -> None:
        """A line for each change, not for each poll."""
        for name, why in silent.items():
            if self._silent.get(name) != why:
                log.warning("power_not_available", node=name, why=why)
        for name in self._silent.keys() - silent.keys():
            log.info("power_available", node=name)
        self._silent = silent


def is_measured_elsewhere(node: NodeState, now_ns: int) -> bool:
    """Agents and exporters count energy, cards and pods; their reading is not replaced."""
    if not node.samples or node.provider in chassis_power.PROVIDERS:
        return False
    return now_ns - node.samples[-1].at < OTHERS_COUNT_NS


async def chassis_reading(bmc: RedfishEntry | IpmiEntry, connections: Connections) -> Reading:
    """Raises ControllerFailed."""
    try:
        async with asyncio.timeout(bmc.timeout_s):
            if isinstance(bmc, IpmiEntry):
                return Reading(await _by_ipmi(bmc), chassis_power.IPMI)
            return Reading(await _by_redfish(bmc, connections), chassis_power.REDFISH)
    except TimeoutError as error:
        raise ControllerFailed(f"{bmc.address}: no answer in {bmc.timeout_s:g} s") from error


# --- Redfish ----------------------------------------------------------------------------------


async def _by_redfish(entry: RedfishEntry, connections: Connections) -> float:
    async with connections.session(entry.address) as session:
        service = RedfishService(session, entry)
        if entry.chassis:
            paths = [f"{ROOT}Chassis/{entry.chassis}"]
        else:
            paths = members(await service.read(f"{ROOT}Chassis"))[:MOST_CHASSIS]
        found = [(path, power) for path in paths if (power := await _power(service, path))]
    one = chassis_power.one_of(found)
    if one is None:
        many = "several have: name one (chassis)" if found else "none has"
        raise ControllerFailed(
            f"{entry.address}: of {len(paths)} chassis with a power reading {many}"
        )
    return one[1]


async def _power(service: RedfishService, path: str) -> float | None:
    """Of one chassis: EnvironmentMetrics, its sensor, or Power of older services."""
    chassis = await service.read(path)
    if metrics := linked(chassis, "EnvironmentMetrics"):
        document = await service.read(metrics)
        if found := chassis_power.of_environment(document):
            return found
        if sensor := chassis_power.sensor_of(document):
            return chassis_power.of_sensor(await service.read(sensor))
    if power := linked(chassis, "Power"):
        return chassis_power.of_power(await service.read(power))
    return None


# --- IPMI -------------------------------------------------------------------------------------


async def _by_ipmi(entry: IpmiEntry) -> float:
    """ipmitool reads the password from its file: arguments of a process can be read by others."""
    login = (
        "-H",
        entry.address,
        "-U",
        kept_secret(entry.user_file),
        "-f",
        entry.password_file,
    )
    words = ("ipmitool", "-I", "lanplus", *login, "dcmi", "power", "reading")
    try:
        async with running(words) as process:
            assert process.stdout is not None
            printed = await bounded(process.stdout, f"ipmitool for {entry.address}")
            code = await process.wait()
    except TimeoutError:
        raise
    except OSError as error:
        raise ControllerFailed(f"ipmitool cannot be run: {error.strerror}") from error
    output = printed.decode("utf-8", "replace")
    power = chassis_power.of_dcmi(output)
    if code or power is None:
        said = " ".join(output.split())[-200:]
        raise ControllerFailed(
            f"{entry.address}: ipmitool ended with {code} and no reading: {said}"
        )
    return power
