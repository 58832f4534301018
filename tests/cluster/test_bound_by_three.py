"""Three replicas bind pods with cards while a real kube-scheduler gives out devices of DRA.

Replicas, the projector and the operator are killed meanwhile.

.venv/bin/python -m pytest -m drill -s tests/cluster/test_bound_by_three.py
KUBE_BIN=.kube/bin-1.37.2 before it: with that version.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from itertools import count, cycle
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bus_kit import until
from cluster_load import CARDS, cards_of, cluster, kubeconfigs_of
from http_server import serving
from joulie_bus.runtime.tasks import background
from joulie_extender.settings import CLAIM_S
from joulie_operator.kube.api_client import object_path
from joulie_projections.history.history import History
from kube_builders import articles_pod
from kube_conditions import NODES, PODS
from kube_devices import CLAIMS, claiming, end_claiming, put_claiming, put_nodes_of_eight
from kube_real import SCHEDULER, Running, Tree, program_or_skip
from kube_scheduled import deployed_block, scheduling
from own_installation import Site
from programs import kept

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(900)]
REPLICAS = ("e0", "e1", "e2")
WITH_DEVICES = ("d0", "d1", "d2", "d3")
CARDED, CLAIMING, WAVE = 120, 90, 30
HOLD_S, KILL_S, CHANGE_S = 2.0, 2.5, 2.0
FEWEST_KILLS = 10


@contextlib.asynccontextmanager
async def balanced(site: Site, answered: Counter[str]) -> AsyncGenerator[str, None]:
    """The address of a service: each request goes to the next replica."""
    turns = cycle(site.extenders.items())
    async with aiohttp.ClientSession() as session:

        async def forward(request: web.Request) -> web.Response:
            name, (host, port) = next(turns)
            body, headers = await request.read(), {"Content-Type": "application/json"}
            url = f"http://{host}:{port}{request.path}"
            try:
                async with session.post(url, data=body, headers=headers) as reply:
                    found = web.Response(status=reply.status, body=await reply.read())
            except aiohttp.ClientError:
                return web.Response(status=502)  # it was killed
            found.content_type = "application/json"
            answered[f"{request.path.rpartition('/')[2]} by {name}"] += 1
            return found

        async with serving(forward) as url:
            yield url.removeprefix("http://")


@contextlib.asynccontextmanager
async def installed(place: Path, server: Running) -> AsyncGenerator[Site, None]:
    site = Site(place, kubeconfigs=kubeconfigs_of(server), extenders=REPLICAS)
    await site.with_accounts()
    async with kept([site.broker]):
        await site.until_broker_answers()
        await site.run("migrate")
        async with kept([*site.components.values()]):
            yield site


class Watched:
    """Pods are deleted a little after they were bound; no card and no device has two of them."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self.bound: dict[str, float] = {}  # when each was seen first
        self.gone: set[str] = set()

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            pods, claims = await self._server.all(PODS), await self._server.all(CLAIMS)
            self._require_one_each(pods, claims)
            for name, pod in pods.items():
                if pod["spec"].get("nodeName"):
                    self.bound.setdefault(name, loop.time())
            await self._end([*self.bound], loop.time())
            await asyncio.sleep(0.3)

    def _require_one_each(self, pods: Mapping[str, Tree], claims: Mapping[str, Tree]) -> None:
        held = cards_of(pods)
        assert not {uuid: names for uuid, names in held.items() if len(names) > 1}
        given = Counter(device for claim in claims.values() for device in devices_of(claim))
        assert max(given.values(), default=1) == 1
        for name, pod in pods.items():
            node = pod["spec"].get("nodeName", "")
            assert not node or (node in WITH_DEVICES) == name.startswith("claims"), (name, node)
            if node in CARDS:  # its card and its node are one write
                assert name in {each for uuid in CARDS[node] for each in held.get(uuid, [])}

    async def _end(self, names: list[str], now: float) -> None:
        for name in names:
            if name in self.gone or now < self.bound[name] + HOLD_S:
                continue
            if name.startswith("claims"):
                await end_claiming(self._server, name)
            else:
                await self._server.api.delete(f"{PODS}/{name}")
            self.gone.add(name)


def devices_of(claim: Tree) -> list[tuple[str, str]]:
    allocation = claim.get("status", {}).get("allocation", {})
    results = allocation.get("devices", {}).get("results", [])
    return [(each["pool"], each["device"]) for each in results]


async def kill_at_random(site: Site, dice: random.Random, kills: Counter[str]) -> None:
    while True:
        await asyncio.sleep(KILL_S)
        name = dice.choice([*REPLICAS * 6, "projector", "operator"])
        site.components[name].kill()
        kills[name] += 1


async def change_labels(server: Running) -> None:
    """kube-scheduler tries a pod again, whose extender did not answer, when anything changes, or
    after five minutes."""
    name = WITH_DEVICES[0]
    for number in count():
        metadata = {"name": name, "labels": {"changes": str(number)}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        await server.api.apply(object_path(NODES, name), body)
        await asyncio.sleep(CHANGE_S)


async def create(server: Running, dice: random.Random) -> None:
    """Pods that annotations give a model, and pods with claims, in a random order."""
    kinds = ["cards"] * CARDED + ["claims"] * CLAIMING
    dice.shuffle(kinds)
    for first in range(0, len(kinds), WAVE):
        wave = [*enumerate(kinds[first : first + WAVE], first)]
        await server.put(PODS, *(brief(f"cards-{at}") for at, kind in wave if kind == "cards"))
        counts = [(at, dice.choice((1, 1, 2))) for at, kind in wave if kind == "claims"]
        pods = [claiming(f"claims-{at}", f"template/of-{n}", cores=1) for at, n in counts]
        await put_claiming(server, *pods)
        await asyncio.sleep(1)


def brief(name: str) -> Tree:
    made = articles_pod(name)
    made["spec"]["terminationGracePeriodSeconds"] = 0  # no kubelet ends it
    return made


def claimed(site: Site) -> list[str]:
    with History.of(site.database) as history:
        cards = history.cluster_state().gpus.items()
        return [uuid for uuid, card in cards if card.claims or (card.device and card.device.claims)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_card_is_given_twice_and_no_binding_lost(tmp_path: Path, seed: int) -> None:
    program_or_skip(SCHEDULER)
    dice, kills, answered = random.Random(seed), Counter[str](), Counter[str]()
    async with cluster(tmp_path / "cluster") as server:
        await put_nodes_of_eight(server, WITH_DEVICES, [("of-1", 1), ("of-2", 2)])
        watched = Watched(server)
        async with (
            installed(tmp_path / "site", server) as site,
            balanced(site, answered) as extender,
            scheduling(server, deployed_block("kube-scheduler-split.yaml", extender)),
            background(watched.watch(), "watch"),
            background(change_labels(server), "labels"),
        ):
            async with background(kill_at_random(site, dice, kills), "kills"):
                await create(server, dice)
                await until(lambda: len(watched.gone) == CARDED + CLAIMING, 300)
            # A claim of a replica that was killed before it wrote the Binding ends by itself.
            await until(lambda: not claimed(site), CLAIM_S + 60)
            await site.run("verify")
            replayed = await site.run("replay")
            ended = site.ended

    print(f"\n{server.version}, seed {seed}: {len(watched.gone)} pods; {dict(kills)} killed")
    print(f"{dict(sorted(answered.items()))}")
    assert "no mismatches" in replayed
    assert ended == []
    assert kills.total() >= FEWEST_KILLS
    assert {f"bind by {name}" for name in REPLICAS} <= answered.keys()
