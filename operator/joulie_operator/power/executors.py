"""How a node is switched by its power controller: Redfish, a command, or an autoscaler."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from joulie_bus.errors import SwitchFailed
from joulie_operator.controllers.controller_file import (
    AutoscalerEntry,
    CommandEntry,
    Entry,
    IpmiEntry,
    RedfishEntry,
)
from joulie_operator.controllers.failure import ControllerFailed
from joulie_operator.controllers.redfish_service import RedfishService, own_session
from joulie_operator.facts.redfish_paths import ROOT, members
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


def executor_of(entry: Entry, api: ApiServer) -> Executor | None:
    """None for a controller that is read only."""
    match entry:
        case RedfishEntry():
            return Redfish(entry)
        case CommandEntry():
            return Command(entry.on, entry.off, entry.state, entry.timeout_s)
        case AutoscalerEntry():
            return Autoscaler(api)
        case IpmiEntry():
            return None


class Redfish:
    """A BMC with Redfish (DSP0266): the first system of the service, or the one that is named."""

    def __init__(self, entry: RedfishEntry) -> None:
        self._entry = entry

    async def is_on(self, node: str) -> bool | None:
        async with self._service() as service:
            found = await service.read(await self._system(service))
        state = found.get("PowerState")
        return {"On": True, "PoweringOn": True, "Off": False, "PoweringOff": True}.get(str(state))

    async def switch_on(self, node: str) -> None:
        await self._reset("On")

    async def switch_off(self, node: str) -> None:
        await self._reset("GracefulShutdown")

    async def _reset(self, kind: str) -> None:
        async with self._service() as service:
            system = (await self._system(service)).rstrip("/")
            await service.post(f"{system}/Actions/ComputerSystem.Reset", {"ResetType": kind})

    async def _system(self, service: RedfishService) -> str:
        if self._entry.system:
            return f"{ROOT}Systems/{self._entry.system}"
        listed = await service.read(f"{ROOT}Systems")
        if systems := members(listed):
            return systems[0]
        raise SwitchFailed(f"{self._entry.address} lists no system of its own")

    @asynccontextmanager
    async def _service(self) -> AsyncGenerator[RedfishService, None]:
        timeout_s = self._entry.timeout_s
        try:
            async with asyncio.timeout(timeout_s), own_session() as session:
                yield RedfishService(session, self._entry)
        except TimeoutError as error:
            why = f"{self._entry.address}: no answer in {timeout_s:g} s"
            raise SwitchFailed(why) from error
        except ControllerFailed as error:
            raise SwitchFailed(str(error)) from error


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
