"""Pods arrive, a model of kube-scheduler places them by way of the extenders, and they end."""

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Sequence

from simulated_cluster import NODES
from simulated_components import ExtenderComponent, Surroundings
from simulated_hours import Burst

from go_http import CallFailed, Client
from joulie_extender.binding.binder import BindRequest
from kube_scheduler import Block, ExtenderFailed, KubeScheduler, Node, Pod, uid_of

PER_SECOND = 1.2
WITH_CARD_SHARE = 0.4
SHORTEST_S, LONGEST_S = 3.0, 20.0  # of a pod that runs
RETRY_S = 1.0


class AnyExtender(Client):
    """The Service in front of the extenders, as kube-scheduler calls it."""

    def __init__(
        self, extenders: Sequence[ExtenderComponent], rng: random.Random, around: Surroundings
    ) -> None:
        super().__init__("extender", 80)
        self._extenders = extenders
        self._rng = rng
        self._truth = around.truth

    async def post(self, verb: str, body: bytes, timeout_s: float) -> bytes:
        up = [each for each in self._extenders if each.handler is not None]
        if not up:
            raise CallFailed("no endpoints")
        reply = await self._rng.choice(up).post(verb, body, timeout_s)
        asked = json.loads(body)
        uid = asked["PodUID"] if verb == "bind" else uid_of(asked["Pod"])
        self._truth.answered(verb, uid)
        return reply


class Pods:
    def __init__(
        self,
        around: Surroundings,
        extenders: Sequence[ExtenderComponent],
        random_for: Callable[[str], random.Random],
    ) -> None:
        self._api = around.api
        self._arrivals = random_for("arrivals")
        self._lifetimes = random_for("lifetimes")
        client = AnyExtender(extenders, random_for("requests"), around)
        self._block = Block(client, timeout_s=5.0)
        self._scheduler = KubeScheduler({name: Node(cpu=16) for name in NODES}, [self._block])
        self._turn = asyncio.Lock()

    async def come_and_go(self, bursts: Sequence[Burst], cluster_s: Callable[[], float]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for burst in bursts:
                await asyncio.sleep(max(0.0, burst.start - cluster_s()))
                while cluster_s() < burst.end:
                    await asyncio.sleep(self._arrivals.expovariate(PER_SECOND))
                    tasks.create_task(self._life_of(self._created()))
            await asyncio.Event().wait()

    def _created(self) -> str:
        gpus = int(self._arrivals.random() < WITH_CARD_SHARE)
        workload = self._arrivals.choice(("", "performance"))
        return self._api.create(gpus=gpus, workload=workload)

    async def _life_of(self, uid: str) -> None:
        lasts_s = self._lifetimes.uniform(SHORTEST_S, LONGEST_S)
        while not await self._is_placed(self._api.pods[uid].manifest):
            await asyncio.sleep(RETRY_S)
        await asyncio.sleep(lasts_s)
        self._api.delete(uid)
        self._forget(uid)

    async def _is_placed(self, pod: Pod) -> bool:
        async with self._turn:  # one pod at a time, and Bindings beside it
            attempt = await self._scheduler.attempt(pod)
        if attempt.node is None:
            return False
        with contextlib.suppress(ExtenderFailed):
            await self._bind(pod, attempt.node)
        if not self._api.pods[uid_of(pod)].node:
            self._forget(uid_of(pod))
            return False
        return True

    async def _bind(self, pod: Pod, node: str) -> None:
        """Only the extender knows the cards of a pod."""
        uid = uid_of(pod)
        if self._api.pods[uid].ask.gpu_milli:
            await self._block.bind(pod, node)
        else:
            self._api.bind(BindRequest("default", pod["metadata"]["name"], uid, node))

    def _forget(self, uid: str) -> None:
        for node in self._scheduler.nodes.values():
            node.pods = [each for each in node.pods if each.uid != uid]
