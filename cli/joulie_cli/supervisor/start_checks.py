"""What `joulie up` and `joulie demo` check before they start anything.

A component that finds its port taken or its disk full ends and is started again, for ever, and
only its log file has the reason.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

from joulie_bus.errors import BadKubeconfig, DiskFull, PortTaken, SettingsError
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.system_errors import reason_of
from joulie_projections.component.room import lack_of_room

LEAST_FREE_BYTES = 64 * 2**20


def require_ports(addresses: Iterable[HostPort]) -> None:
    """Raises PortTaken, also if two of the addresses are one."""
    with contextlib.ExitStack() as held:
        for at in addresses:
            family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
            try:
                held.enter_context(socket.create_server(at, family=family))
            except OSError as error:
                raise PortTaken(str(at), reason_of(error)) from error


def require_room(directory: Path) -> None:
    """Raises DiskFull."""
    if why := lack_of_room(directory, LEAST_FREE_BYTES):
        raise DiskFull(str(directory), why)


def require_kubeconfig(file: Path) -> None:
    """Raises BadKubeconfig. An API server that does not answer is no reason not to start."""
    from joulie_operator.kube.api_client import ApiServer  # imported for real clusters only

    async def load() -> None:
        async with ApiServer.of(file):
            pass

    try:
        asyncio.run(load())
    except SettingsError as error:
        raise BadKubeconfig("; ".join(error.mistakes)) from error
