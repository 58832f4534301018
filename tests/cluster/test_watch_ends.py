"""A real kube-apiserver ends watches while pods come and go in bursts: none of them is missed."""

from collections import Counter
from collections.abc import Sequence

import pytest

from joulie_bus.runtime.tasks import background
from joulie_operator.kube import api_client
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.observe.watch import ALIVE
from joulie_projections.pods.kubernetes_pod import Pod
from kube_conditions import PODS, wait_until
from kube_real import Running, Tree, all_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
BURST, ENDS = 60, 4
ALL_PODS = "/api/v1/pods"


class Received:
    """A sink that counts how often it received each pod as new and as deleted."""

    def __init__(self) -> None:
        self.lists = 0
        self.seen = Counter[tuple[str, str]]()

    def begin_list(self) -> None:
        self.lists += 1

    async def add_listed(self, objects: Sequence[Pod]) -> None:
        await self.apply_events([("ADDED", pod) for pod in objects])

    async def end_list(self) -> None:
        pass

    async def apply_events(self, events: Sequence[tuple[str, Pod]]) -> None:
        found = [(kind, pod.metadata.name or "") for kind, pod in events]
        self.seen.update(each for each in found if each[0] != "MODIFIED")


def named(number: int) -> Tree:
    containers = [{"name": "c", "image": "none"}]
    return {"metadata": {"name": f"p{number:05}"}, "spec": {"containers": containers}}


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_no_pod_of_a_burst_is_missed_or_received_twice_when_the_server_ends_watches(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's limit is two to three seconds; bursts go on until it has ended four watches."""
    monkeypatch.setattr(api_client, "WATCH_S", 3)
    received, made = Received(), list[str]()

    def ended() -> int:
        return sum(
            (asked["verb"], asked["objectRef"]["resource"]) == ("watch", "pods")
            for asked in server.asked()
        )

    async def burst() -> None:
        names = [named(len(made) + number) for number in range(BURST)]
        await all_of(server.put(PODS, tree) for tree in names)
        made.extend(tree["metadata"]["name"] for tree in names)
        gone = made[-BURST::2]
        await all_of(server.api.delete(f"{PODS}/{name}") for name in gone)

    async def all_are_received() -> bool:
        wanted = {("ADDED", name) for name in made}
        wanted |= {("DELETED", name) for name in made if int(name[1:]) % 2 == 0}
        return wanted == set(received.seen)

    async with ApiServer.of(server.kubeconfig("operator")) as api:
        watcher = Watcher(api, ALL_PODS, decoder_of(Pod), received, ALIVE)
        async with background(watcher.run(), "watch"):
            while ended() < ENDS:
                await burst()
            await wait_until(all_are_received)

    assert set(received.seen.values()) == {1}
    assert received.lists == 1
