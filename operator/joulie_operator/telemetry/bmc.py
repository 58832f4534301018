"""Reads the power of whole chassis from their BMCs: Redfish, or DCMI by ipmitool.

A BMC that does not answer, or answers anything else than a power, gives no reading. What it sends
is bounded, its certificate is verified, and redirects are not followed: they could send the
credentials to another host.
"""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import aiohttp
import msgspec

from joulie_bus.core.kube_names import is_subdomain
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.runtime.logging import get_logger
from joulie_operator.facts import chassis_power
from joulie_operator.facts.readings import Reading
from joulie_operator.kept_secrets import kept_secret
from joulie_operator.programs import running
from joulie_operator.telemetry.bmc_connections import AT_ONCE, Connections
from joulie_operator.telemetry.bmc_file import Bmc, BmcEntry, NotAvailable, bmc_of
from joulie_projections.state.state import NodeState

MOST_BYTES = 1 << 20  # of a document, or of what ipmitool prints
MOST_CHASSIS = 16
OTHERS_COUNT_NS = 60_000_000_000  # a reading of another source counts for so long
log = get_logger("bmc")


class Bmcs:
    """The BMCs of the nodes, and why some of them have no reading."""

    def __init__(self, entries: Sequence[BmcEntry]) -> None:
        self._entries = entries
        self._silent: dict[str, str] = {}
        self._connections = Connections()

    async def close(self) -> None:
        await self._connections.close()

    async def read(self, nodes: Mapping[str, NodeState], now_ns: int) -> dict[str, Reading]:
        """Of nodes that no other source measures."""
        silent, gate = dict[str, str](), asyncio.Semaphore(AT_ONCE)
        found = dict[str, Reading]()
        bmcs = self._wanted(nodes, now_ns, silent)
        self._connections.begin([bmc.address for bmc in bmcs.values()], now_ns)

        async def one(name: str, bmc: Bmc) -> None:
            async with gate:
                try:
                    found[name] = await chassis_reading(bmc, self._connections)
                except NotAvailable as error:
                    self._connections.failed(bmc.address, now_ns)
                    silent[name] = str(error)

        await asyncio.gather(*(one(name, bmc) for name, bmc in bmcs.items()))
        self._report(silent)
        return found

    def _wanted(
        self, nodes: Mapping[str, NodeState], now_ns: int, silent: dict[str, str]
    ) -> dict[str, Bmc]:
        found = dict[str, Bmc]()
        for name, node in nodes.items():
            try:
                bmc = bmc_of(self._entries, name, node) if is_subdomain(name) else None
            except NotAvailable as error:
                silent[name] = str(error)
                continue
            if bmc is not None and not is_measured_elsewhere(node, now_ns):
                found[name] = bmc
        counts = Counter((bmc.address, bmc.chassis) for bmc in found.values())
        for name, bmc in list(found.items()):
            if counts[bmc.address, bmc.chassis] > 1:
                silent[name] = (
                    f"{bmc.address} is the BMC of several nodes; name the chassis of each"
                )
                del found[name]
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


async def chassis_reading(bmc: Bmc, connections: Connections) -> Reading:
    """Raises NotAvailable."""
    try:
        async with asyncio.timeout(bmc.entry.timeout_s):
            if bmc.entry.kind == "ipmi":
                return Reading(await _by_ipmi(bmc), chassis_power.IPMI)
            return Reading(await _by_redfish(bmc, connections), chassis_power.REDFISH)
    except TimeoutError as error:
        raise NotAvailable(f"{bmc.address}: no answer in {bmc.entry.timeout_s:g} s") from error


_secret = partial(kept_secret, failure=NotAvailable)


# --- Redfish ----------------------------------------------------------------------------------


def _trusting(ca_file: str) -> SSLContext:
    """Kept until the file changes, for thousands of readings."""
    return _context(ca_file, Path(ca_file).stat().st_mtime_ns if ca_file else 0)


@lru_cache(maxsize=16)
def _context(ca_file: str, _changed_ns: int) -> SSLContext:
    return create_default_context(cafile=ca_file or None)


async def _by_redfish(bmc: Bmc, connections: Connections) -> float:
    entry = bmc.entry
    login = b64encode(f"{_secret(entry.user_file)}:{_secret(entry.password_file)}".encode())
    headers = {"Authorization": f"Basic {login.decode()}"}
    try:
        tls = _trusting(entry.ca_file)
    except OSError as error:
        raise NotAvailable(f"{entry.ca_file} is no authority") from error
    async with connections.session(bmc.address) as session:
        service = _Service(session, bmc.address.rstrip("/"), headers, tls)
        if bmc.chassis:
            paths = [f"{chassis_power.ROOT}Chassis/{bmc.chassis}"]
        else:
            listed = await service.read(f"{chassis_power.ROOT}Chassis")
            paths = chassis_power.members(listed)[:MOST_CHASSIS]
        found = [(path, power) for path in paths if (power := await service.power(path))]
    one = chassis_power.one_of(found)
    if one is None:
        many = "several have: name one (chassis)" if found else "none has"
        raise NotAvailable(f"{bmc.address}: of {len(paths)} chassis with a power reading {many}")
    return one[1]


class _Service:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        address: str,
        headers: Mapping[str, str],
        tls: SSLContext,
    ) -> None:
        self._session = session
        self._address = address
        self._asking: dict[str, Any] = {"headers": headers, "ssl": tls, "allow_redirects": False}

    async def power(self, path: str) -> float | None:
        """Of one chassis: EnvironmentMetrics, its sensor, or Power of older services."""
        chassis = await self.read(path)
        if metrics := chassis_power.linked(chassis, "EnvironmentMetrics"):
            document = await self.read(metrics)
            if found := chassis_power.of_environment(document):
                return found
            if sensor := chassis_power.sensor_of(document):
                return chassis_power.of_sensor(await self.read(sensor))
        if power := chassis_power.linked(chassis, "Power"):
            return chassis_power.of_power(await self.read(power))
        return None

    async def read(self, path: str) -> dict[str, Any]:
        url = f"{self._address}{path}"
        try:
            async with self._session.get(url, **self._asking) as response:
                if response.status != 200:
                    raise NotAvailable(f"{url} answered {response.status}")
                body = await _bounded(response.content, url)
                return msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise NotAvailable(f"{url} is no JSON object") from error
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotAvailable(f"{url}: {error or type(error).__name__}") from error


async def _bounded(content: aiohttp.StreamReader | asyncio.StreamReader, what: str) -> bytes:
    """Raises NotAvailable for more than MOST_BYTES."""
    body = bytearray()
    while part := await content.read(65536):
        body += part
        if len(body) > MOST_BYTES:
            raise NotAvailable(f"{what}: more than {MOST_BYTES} bytes")
    return bytes(body)


# --- IPMI -------------------------------------------------------------------------------------


async def _by_ipmi(bmc: Bmc) -> float:
    """ipmitool reads the password from its file: arguments of a process can be read by others."""
    login = (
        "-H",
        bmc.address,
        "-U",
        _secret(bmc.entry.user_file),
        "-f",
        bmc.entry.password_file,
    )
    words = ("ipmitool", "-I", "lanplus", *login, "dcmi", "power", "reading")
    try:
        async with running(words) as process:
            assert process.stdout is not None
            printed = await _bounded(process.stdout, f"ipmitool for {bmc.address}")
            code = await process.wait()
    except TimeoutError:
        raise
    except OSError as error:
        raise NotAvailable(f"ipmitool cannot be run: {error.strerror}") from error
    output = printed.decode("utf-8", "replace")
    power = chassis_power.of_dcmi(output)
    if code or power is None:
        said = " ".join(output.split())[-200:]
        raise NotAvailable(f"{bmc.address}: ipmitool ended with {code} and no reading: {said}")
    return power
