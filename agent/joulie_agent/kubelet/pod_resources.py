"""Asks the kubelet which devices it gave to which pod: PodResources v1, `List`.

The socket is `/var/lib/kubelet/pod-resources/kubelet.sock`. It belongs to root and asks for no
credential; the kubelet answers at most 100 requests a second.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_agent.kubelet.wire import BadMessage, Messages
from joulie_bus.core.kube_names import SHOWN, is_label, is_subdomain
from joulie_bus.events.bounds import NAME, is_name

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
LIST = "/v1.PodResourcesLister/List"
PATIENCE_S = 5.0
MOST_BYTES = 4 << 20  # of an answer; with 250 pods it has some 100 KiB
MOST_DEVICES = 10_000  # of all pods together
NO_GRPC = "grpclib is not installed, so the kubelet was not asked; pip install 'joulie[agent]'"
_REPLICA = re.compile(r"::\d+$")  # a time-sliced card has an id for each of its shares


class KubeletSilent(Exception):
    """The kubelet does not answer, with the reason."""


class Assigned(NamedTuple):
    """One device that a pod has. `resource` is that of a device plugin, or the driver of DRA."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str  # the plugin's id, often a UUID; for DRA `driver/pool/device`

    @property
    def holder(self) -> str:
        return f"{self.namespace}/{self.pod}"


async def assigned(socket: Path) -> list[Assigned]:
    """The devices of all pods of this node. Raises KubeletSilent."""
    if not socket.exists():
        raise KubeletSilent(f"{socket}: there is no such socket; no kubelet runs here")
    try:  # here, because a node without cards needs no grpclib
        from joulie_agent.kubelet.grpc_call import CallFailed, call
    except ImportError as error:
        raise KubeletSilent(NO_GRPC) from error
    try:
        async with asyncio.timeout(PATIENCE_S):
            # A task of its own: grpclib cancels the task that it runs in when a connection ends.
            reply = await asyncio.create_task(call(socket, LIST, b"", MOST_BYTES))
        return list(_bounded(_devices(Messages(), reply)))
    except TimeoutError as error:
        raise KubeletSilent(f"{socket}: no answer within {PATIENCE_S:g} s") from error
    except (CallFailed, BadMessage) as error:
        raise KubeletSilent(f"{socket}: {error}") from error


def _bounded(given: Iterable[Assigned]) -> Iterator[Assigned]:
    for number, each in enumerate(given):
        if number == MOST_DEVICES:
            raise BadMessage(f"it assigns more than {MOST_DEVICES:,} devices")
        yield each


def _devices(read: Messages, reply: bytes) -> Iterator[Assigned]:
    for pod in read.parts(reply, 1):
        name = _checked("pod", read.text(pod, 1), is_subdomain)
        namespace = _checked("namespace", read.text(pod, 2), is_label)
        for container in read.parts(pod, 3):
            where = (namespace, name, _checked("container", read.text(container, 1), is_label))
            for devices in read.parts(container, 2):
                resource = _checked("resource", read.text(devices, 1), is_name)
                for device in read.texts(devices, 2):
                    yield Assigned(*where, resource, _checked("device", device, is_name))
            for claim in read.parts(container, 5):
                for given in read.parts(claim, 4):
                    driver, pool, name_in_pool = (read.text(given, at) for at in (2, 3, 4))
                    device = f"{driver}/{pool}/{name_in_pool}"
                    yield Assigned(*where, driver, _checked("device", device, _is_device))


def _is_device(text: str) -> bool:
    return len(text) <= 3 * NAME and all(map(is_name, text.split("/")))


def _checked(what: str, text: str, is_right: Callable[[str], bool]) -> str:
    """An answer with one such name is refused as a whole: to leave out its device would free it."""
    if not is_right(text):
        raise BadMessage(f"it names the {what} {text[:SHOWN]!a}, and Kubernetes has no such name")
    return text


def holders(given: list[Assigned]) -> dict[str, list[str]]:
    """The pods of each device, by its id."""
    found: dict[str, dict[str, None]] = {}  # a dict keeps the order
    for each in given:
        found.setdefault(each.device, {})[each.holder] = None
    return {device: list(pods) for device, pods in found.items()}


async def pods_of_cards(socket: Path) -> dict[str, list[str]]:
    """By the id of the card, and of DRA by driver/pool/device. Raises KubeletSilent. The shares of
    a time-sliced card count as the card."""
    given = await assigned(socket)
    return holders([each._replace(device=_REPLICA.sub("", each.device)) for each in given])
