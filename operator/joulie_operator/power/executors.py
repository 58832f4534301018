"""How a node is switched: by Redfish, IPMI, wake-on-LAN, a command, or an autoscaler."""

import asyncio
import os
import signal
import socket
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urljoin

import aiohttp
import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import SwitchFailed
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.observe.watch import NODES
from joulie_operator.resources.custom_resources import ANNOTATION_MANAGER

MOST_OUTPUT = 300  # characters of a command's output in an error
# While a node is awake, autoscalers do not remove it: an idle node belongs to the reserve.
AWAKE_ANNOTATIONS = {
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    "karpenter.sh/do-not-disrupt": "true",
}


class Executor(Protocol):
    """All errors are SwitchFailed. Each call may be repeated."""

    async def is_on(self, node: str) -> bool | None:
        """None if it cannot be read."""
        ...

    async def switch_on(self, node: str) -> None: ...

    async def switch_off(self, node: str) -> None:
        """Asks the operating system to shut down, where the controller can."""
        ...


class Redfish:
    """A BMC with Redfish (DSP0266): the first system of the service, or the one that is named."""

    def __init__(
        self, address: str, credentials: tuple[str, str], system: str, timeout_s: float, ssl: Any
    ) -> None:
        self._address = address
        login = b64encode(":".join(credentials).encode()).decode()
        self._headers = {"Authorization": f"Basic {login}"}
        self._system = system
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._ssl = ssl

    async def is_on(self, node: str) -> bool | None:
        async with self._session() as session:
            found = await self._read(session, await self._path(session))
        state = found.get("PowerState")
        return {"On": True, "PoweringOn": True, "Off": False, "PoweringOff": True}.get(str(state))

    async def switch_on(self, node: str) -> None:
        await self._reset("On")

    async def switch_off(self, node: str) -> None:
        await self._reset("GracefulShutdown")

    async def _reset(self, kind: str) -> None:
        async with self._session() as session:
            path = f"{(await self._path(session)).rstrip('/')}/Actions/ComputerSystem.Reset"
            await self._call(session, "POST", path, {"ResetType": kind})

    async def _path(self, session: aiohttp.ClientSession) -> str:
        if self._system:
            return f"/redfish/v1/Systems/{self._system}"
        found = await self._read(session, "/redfish/v1/Systems")
        members = found.get("Members")
        if not isinstance(members, list) or not members:
            raise SwitchFailed(f"{self._address} names no system")
        if not isinstance(members[0], dict):
            raise SwitchFailed(f"{self._address} lists a system that is no object")
        return str(members[0].get("@odata.id"))

    async def _read(self, session: aiohttp.ClientSession, path: str) -> dict[str, Any]:
        try:
            return msgspec.json.decode(await self._call(session, "GET", path), type=dict[str, Any])
        except UNDECODABLE as error:
            raise SwitchFailed(f"{self._address}{path} returned no JSON object") from error

    async def _call(
        self, session: aiohttp.ClientSession, method: str, path: str, body: object = None
    ) -> bytes:
        url = urljoin(self._address, path)
        try:
            # Redirects could send the credentials to another host.
            async with session.request(
                method, url, json=body, ssl=self._ssl, allow_redirects=False
            ) as response:
                answer: bytes = await response.read()
                if response.status >= 300:
                    raise SwitchFailed(f"{method} {url} returned {response.status}")
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SwitchFailed(f"{method} {url}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[aiohttp.ClientSession, None]:
        async with aiohttp.ClientSession(headers=self._headers, timeout=self._timeout) as session:
            yield session


class Command:
    """Programs with fixed arguments, without a shell. `state` exits with 0 for on and 1 for off;
    without it, the state is not known."""

    def __init__(
        self, on: Sequence[str], off: Sequence[str], state: Sequence[str], timeout_s: float
    ) -> None:
        self._on, self._off, self._state = on, off, state
        self._timeout_s = timeout_s

    async def is_on(self, node: str) -> bool | None:
        if not self._state:
            return None
        code, output = await run(self._state, self._timeout_s)
        if code not in (0, 1):
            raise SwitchFailed(f"{self._state[0]} ended with {code}: {output}")
        return code == 0

    async def switch_on(self, node: str) -> None:
        await required(self._on, self._timeout_s)

    async def switch_off(self, node: str) -> None:
        await required(self._off, self._timeout_s)


class Ipmi:
    """A BMC by ipmitool, which reads the password from a file."""

    def __init__(self, address: str, user: str, password_file: Path, timeout_s: float) -> None:
        login = ("-H", address, "-U", user, "-f", str(password_file))
        self._words = ("ipmitool", "-I", "lanplus", *login, "chassis", "power")
        self._timeout_s = timeout_s

    async def is_on(self, node: str) -> bool | None:
        output = await required((*self._words, "status"), self._timeout_s)
        return {"on": True, "off": False}.get(output.strip().rpartition(" ")[2].lower())

    async def switch_on(self, node: str) -> None:
        await required((*self._words, "on"), self._timeout_s)

    async def switch_off(self, node: str) -> None:
        await required((*self._words, "soft"), self._timeout_s)


class WakeOnLan:
    """Wakes by a magic packet; a command switches off. The state is not known."""

    def __init__(self, mac: str, to: tuple[str, int], off: Sequence[str], timeout_s: float) -> None:
        self._packet = magic_packet(mac)
        self._to = to
        self._off, self._timeout_s = off, timeout_s

    async def is_on(self, node: str) -> bool | None:
        return None

    async def switch_on(self, node: str) -> None:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sender.sendto(self._packet, self._to)
        except OSError as error:
            raise SwitchFailed(f"no packet to {self._to[0]}:{self._to[1]}: {error}") from error

    async def switch_off(self, node: str) -> None:
        await required(self._off, self._timeout_s)


def magic_packet(mac: str) -> bytes:
    """Six times 0xFF and sixteen times the address. Raises SwitchFailed."""
    digits = mac.replace(":", "").replace("-", "")
    try:
        address = bytes.fromhex(digits)
    except ValueError:
        address = b""
    if len(address) != 6:
        raise SwitchFailed(f"{mac!r} is not a MAC address")
    return b"\xff" * 6 + address * 16


class Autoscaler:
    """Leaves the node to Karpenter or cluster-autoscaler (with Cluster API, too): the annotations
    that protect it are there while it is awake. The cordoned, empty node is then removed, and
    pods that wait make the autoscaler add another one."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def is_on(self, node: str) -> bool | None:
        return None

    async def switch_on(self, node: str) -> None:
        await self._annotate(node, AWAKE_ANNOTATIONS)

    async def switch_off(self, node: str) -> None:
        await self._annotate(node, {})

    async def _annotate(self, node: str, annotations: Mapping[str, str]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "annotations": dict(annotations)},
        }
        await self._api.apply(object_path(NODES, node), body, manager=ANNOTATION_MANAGER)


# --- programs ---------------------------------------------------------------------------------


async def required(words: Sequence[str], timeout_s: float) -> str:
    """The output of a program that ends with 0. Raises SwitchFailed."""
    code, output = await run(words, timeout_s)
    if code:
        raise SwitchFailed(f"{words[0]} ended with {code}: {output}")
    return output


async def run(words: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """The exit code and the last output. A program that takes too long is killed, with all
    processes that it started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise SwitchFailed(f"{words[0]} cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise SwitchFailed(f"{words[0]} took longer than {timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace").strip()[-MOST_OUTPUT:]
