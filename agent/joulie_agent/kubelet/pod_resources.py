"""Asks the kubelet which devices it gave to which pod: PodResources v1, `List`.

The socket is `/var/lib/kubelet/pod-resources/kubelet.sock`. It belongs to root and asks for no
credential; the kubelet answers at most 100 requests a second.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

from joulie_agent.kubelet.wire import BadMessage, parts, text, texts

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
LIST = "/v1.PodResourcesLister/List"
PATIENCE_S = 5.0
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


class RawBytes(CodecBase):
    """Messages stay bytes; `wire` reads them."""

    @property
    def __content_subtype__(self) -> str:
        return "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


async def assigned(socket: Path) -> list[Assigned]:
    """The devices of all pods of this node. Raises KubeletSilent."""
    if not socket.exists():
        raise KubeletSilent(f"{socket}: there is no such socket; no kubelet runs here")
    channel = Channel(path=str(socket), codec=RawBytes())
    try:
        async with asyncio.timeout(PATIENCE_S):
            reply = await UnaryUnaryMethod(channel, LIST, bytes, bytes)(b"")
        return list(_devices(reply))
    except TimeoutError as error:
        raise KubeletSilent(f"{socket}: no answer within {PATIENCE_S:g} s") from error
    except (OSError, GRPCError, BadMessage) as error:
        raise KubeletSilent(f"{socket}: {error}") from error
    finally:
        channel.close()


def _devices(reply: bytes) -> Iterator[Assigned]:
    for pod in parts(reply, 1):
        name, namespace = text(pod, 1), text(pod, 2)
        for container in parts(pod, 3):
            where = (namespace, name, text(container, 1))
            for devices in parts(container, 2):
                resource = text(devices, 1)
                yield from (Assigned(*where, resource, device) for device in texts(devices, 2))
            for claim in parts(container, 5):
                for given in parts(claim, 4):
                    driver, pool = text(given, 2), text(given, 3)
                    yield Assigned(*where, driver, f"{driver}/{pool}/{text(given, 4)}")


def holders(given: list[Assigned]) -> dict[str, list[str]]:
    """The pods of each device, by its id."""
    found: dict[str, list[str]] = {}
    for each in given:
        pods = found.setdefault(each.device, [])
        if each.holder not in pods:
            pods.append(each.holder)
    return found


async def pods_of_cards(socket: Path) -> dict[str, list[str]]:
    """By the id of the card, and of DRA by driver/pool/device. Raises KubeletSilent. The shares of
    a time-sliced card count as the card."""
    found: dict[str, list[str]] = {}
    for device, pods in holders(await assigned(socket)).items():
        known = found.setdefault(_REPLICA.sub("", device), [])
        known.extend(pod for pod in pods if pod not in known)
    return found
