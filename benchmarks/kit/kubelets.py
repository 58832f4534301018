"""Updates the status of each bound pod four times, as its kubelet does while it starts the pod.

    .venv/bin/python benchmarks/kit/kubelets.py KUBECONFIG

A process of its own, so that its CPU is counted apart. It ends with its parent.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml  # type: ignore[import-untyped]

from joulie_bus.runtime.child_process import die_with_parent
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable

PODS = "/api/v1/namespaces/default/pods"
MERGE_PATCH = "application/merge-patch+json"
PAUSE_S = 0.25  # between two updates of a pod
CONNECTIONS = 16


class _Meta(msgspec.Struct):
    name: str


class _Pod(msgspec.Struct):
    metadata: _Meta


def _condition(kind: str, status: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def _status(phase: str, is_ready: bool, *held: str, **more: Any) -> bytes:
    container = {"name": "c", "image": "none", "imageID": "none", "restartCount": 0}
    container |= {"ready": is_ready, "started": phase == "Running"}
    conditions = [
        _condition(kind, "True" if kind in held else "False")
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    conditions.append(_condition("PodScheduled", "True"))
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [container], **more}
    return msgspec.json.encode({"status": status})


ADDRESSES = {"hostIP": "10.1.0.1", "podIP": "10.2.0.1", "podIPs": [{"ip": "10.2.0.1"}]}
UPDATES: Sequence[bytes] = (
    _status("Pending", False, "Initialized", startTime="2026-01-01T00:00:00Z"),
    _status("Pending", False, "Initialized", "PodReadyToStartContainers"),
    _status("Running", False, "Initialized", "PodReadyToStartContainers", **ADDRESSES),
    _status(
        "Running",
        True,
        *("Initialized", "PodReadyToStartContainers", "Ready", "ContainersReady"),
        **ADDRESSES,
    ),
)


class Kubelets:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self._seen = set[str]()

    async def run(self, api: ApiServer) -> None:
        """The server ends a watch after some minutes; the next one starts where it ended."""
        version = ""
        async with asyncio.TaskGroup() as tasks:
            while True:
                watch = api.watch(PODS, version, {"fieldSelector": "spec.nodeName!="})
                with contextlib.suppress(*ApiUnreachable):
                    async with contextlib.aclosing(watch):
                        async for events in watch:
                            for event in events:
                                version = event.version
                                if event.type == "ADDED":
                                    pod = msgspec.json.decode(event.object, type=_Pod)
                                    self._spawn(tasks, pod.metadata.name)

    def _spawn(self, tasks: asyncio.TaskGroup, name: str) -> None:
        if name not in self._seen:
            self._seen.add(name)
            tasks.create_task(self._begin(name))

    async def _begin(self, name: str) -> None:
        url, headers = f"{self._url}{PODS}/{name}/status", {"Content-Type": MERGE_PATCH}
        for update in UPDATES:
            await asyncio.sleep(PAUSE_S)
            async with self._session.patch(url, data=update, headers=headers) as reply:
                await reply.read()
                if reply.status == 404:  # the pod is deleted
                    return
                assert reply.status == 200, await reply.text()


async def serve(kubeconfig: Path) -> None:
    config: Any = yaml.safe_load(kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trusted = ssl.create_default_context(cafile=server["certificate-authority"])
    connector = aiohttp.TCPConnector(ssl=trusted, limit=CONNECTIONS)
    headers = {"Authorization": f"Bearer {user['token']}"}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        ApiServer.of(kubeconfig) as api,
    ):
        await Kubelets(session, server["server"]).run(api)


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(serve(Path(sys.argv[1])))
