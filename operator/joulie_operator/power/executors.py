"""How a node is switched: by Redfish, a command, or an autoscaler."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urljoin

import aiohttp
import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import SwitchFailed
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_operator.observe.watch import NODES
from joulie_operator.programs import running
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


async def required(words: Sequence[str], timeout_s: float) -> None:
    """Raises SwitchFailed for a program that does not end with 0."""
    code, output = await run(words, timeout_s)
    if code:
        raise SwitchFailed(f"{words[0]} ended with {code}: {output}")


async def run(words: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """The exit code and the last output. A program that takes too long is killed."""
    try:
        async with asyncio.timeout(timeout_s), running(words) as process:
            output, _ = await process.communicate()
    except TimeoutError as error:  # an OSError, too
        raise SwitchFailed(f"{words[0]} took longer than {timeout_s:g} s") from error
    except OSError as error:
        raise SwitchFailed(f"{words[0]} cannot be run: {error.strerror}") from error
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace").strip()[-MOST_OUTPUT:]
