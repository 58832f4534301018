"""Two replicas, one log, more pods than cards, and replicas killed between steps of a bind.

Every pod requests a whole card. No card is ever held by two pods, none stays lost, and every pod
that is not bound gets a reason.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, producer, until
from go_http import Client
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import GpuSeen
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_operator.kube.api_client import ApiServer as Watched
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_scheduler import Block, ExtenderFailed, KubeScheduler, Node, a_pod

pytestmark = pytest.mark.anyio
MODEL = "NVIDIA-A100-SXM4-40GB"
PER_NODE, CONNECTIONS, LIFE_S = 8, 12, 5
PROGRAM = f"""
import sys
from joulie_cli.main import main
from joulie_extender import settings
settings.BIND_S, settings.CLAIM_S = 2.0, {LIFE_S}  # claims of a dead replica lapse within the test
sys.exit(main())
"""
BEFORE, AFTER = "between claim and Binding", "between Binding and reply"


class Replica:
    """`joulie extender` in a separate process, restarted whenever it exits."""

    def __init__(self, name: str, environ: dict[str, str], data: Path, log: Path) -> None:
        self.name, self.port = name, free_port()
        self._environ = environ | {
            "EXTENDER_REPLICA": name,
            "EXTENDER_ADDR": f"127.0.0.1:{self.port}",
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
        }
        self._data, self._log = data, log
        self._process: Process | None = None

    async def live(self) -> None:
        while True:
            with self._log.open("ab") as file:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", PROGRAM, "extender"),
                    *("--data", str(self._data)),
                    env=self._environ,
                    stdin=DEVNULL,
                    stdout=file,
                    stderr=file,
                    preexec_fn=die_with_parent,
                )
            try:
                await self._process.wait()
            except asyncio.CancelledError:
                self._process.kill()
                await self._process.wait()
                raise

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)


class Race:
    def __init__(self, api: ApiServer, view: View, replicas: list[Replica], seed: int) -> None:
        self.api, self.view, self.replicas = api, view, replicas
        self.draw = random.Random(seed)
        self.kills: dict[int, str] = {}  # number of the Binding -> BEFORE or AFTER
        self._bindings = 0
        self.happened: Counter[str] = Counter()
        self.why: dict[str, str] = {}
        self._bind = api.objects.bind
        api.objects.bind = self._met  # type: ignore[method-assign]

    # --- the API server, which kills a replica during its request ---

    def _met(self, namespace: str, name: str, body: dict[str, Any]) -> None:
        self._bindings += 1
        moment = self.kills.get(self._bindings, "")
        if moment == BEFORE:
            self._kill_asker(name, moment)
            raise ConnectionResetError
        self._bind(namespace, name, body)
        self._nobody_shares()
        if moment == AFTER:
            self._kill_asker(name, moment)
            raise ConnectionResetError

    def _kill_asker(self, name: str, moment: str) -> None:
        whole = f"pods/binding {name}"
        user = next(a.user for a in reversed(self.api.asked) if f"{a.resource} {a.name}" == whole)
        next(replica for replica in self.replicas if replica.name == user).kill()
        self.happened[moment] += 1

    # --- invariants ---

    def named(self) -> dict[str, list[str]]:
        """The pods that each card is named for."""
        found: dict[str, list[str]] = {}
        for name, pod in self.api.all("pods").items():
            cards = pod["metadata"].get("annotations", {}).get("joulie.io/gpus", "")
            for card in filter(None, cards.split(",")):
                found.setdefault(card, []).append(name)
        return found

    def claimed(self) -> dict[str, list[str]]:
        gpus = self.view.cluster_state.gpus.items()
        return {
            uuid: sorted(claim.name for claim in card.claims.values())
            for uuid, card in gpus
            if card.claims
        }

    def _nobody_shares(self) -> None:
        shared = {card: pods for card, pods in self.named().items() if len(pods) > 1}
        assert not shared, f"held by two: {shared}"

    async def watched(self) -> None:
        """Check the claims of the log at every position."""
        while True:
            with contextlib.suppress(Exception):
                await self.view.wait_for(self.view.position + 1, 60)
            shared = {card: pods for card, pods in self.claimed().items() if len(pods) > 1}
            assert not shared, f"claimed by two: {shared}"

    # --- kube-scheduler ---

    async def place(self, pods: list[dict[str, Any]], nodes: list[str], until_s: float) -> None:
        """Place all pods at once, over many connections, repeatedly until `until_s` have passed."""
        queue = asyncio.Queue[dict[str, Any]]()
        for pod in pods:
            queue.put_nowait(pod)
        end = time.monotonic() + until_s
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONNECTIONS):
                tasks.create_task(self._serve(queue, nodes, number, end))

    async def _serve(
        self, queue: asyncio.Queue[dict[str, Any]], nodes: list[str], number: int, end: float
    ) -> None:
        client = Client("127.0.0.1", self.replicas[number % 2].port, "/gpu")
        block = Block(client, managed=("nvidia.com/gpu",), timeout_s=4.0)
        scheduler = KubeScheduler({name: Node(cpu=10_000) for name in nodes}, [block])
        while not queue.empty() and time.monotonic() < end and not self._is_over():
            pod = queue.get_nowait()
            name = pod["metadata"]["name"]
            if self.api.all("pods")[name]["spec"].get("nodeName"):
                continue  # its informer has seen it bound
            attempt = await scheduler.attempt(pod)
            self.why[name] = attempt.message
            try:
                if attempt.node is not None:
                    await block.bind(pod, attempt.node)
            except ExtenderFailed as error:
                self.why[name] = str(error)
            if not self.api.all("pods")[name]["spec"].get("nodeName"):
                queue.put_nowait(pod)
                await asyncio.sleep(0.1)  # its back-off
        await client.close()

    def _is_over(self) -> bool:
        """All kills have happened, and no card is left."""
        is_full = len(self.named()) == len(self.view.cluster_state.gpus)
        return is_full and self._bindings > max(self.kills) and len(self.why) == len(self.pods)

    @property
    def pods(self) -> dict[str, Any]:
        return self.api.all("pods")


def the_articles(name: str) -> dict[str, Any]:
    pod = a_pod(name, gpus=1)
    pod["metadata"]["annotations"] = {
        "gpu-extender.mle.com/model": MODEL,
        "gpu-extender.mle.com/vram-mb": "30000",
    }
    del pod["metadata"]["managedFields"], pod["metadata"]["resourceVersion"]
    return pod


@contextlib.asynccontextmanager
async def racing(
    broker: Embedded, bus: JetStreamLog, writer: Engine, place: Path, seed: int
) -> AsyncGenerator[Race, None]:
    projector = Projector(bus, CLUSTER, writer, Signer.of(place / "key"), ProjectorSettings())
    engine = database.reader(place / "joulie.db")
    address = broker.address_of(Role.EXTENDER)
    async with (
        background(projector.run(), "projector"),
        View.open(bus, engine, CLUSTER) as view,
        ApiServer().listening() as api,
        Watched.of(api.kubeconfig(place)) as kube,
        background(watch_cluster(kube, bus, CLUSTER, view, ObservedCluster.empty()), "watch"),
        contextlib.AsyncExitStack() as stack,
    ):
        replicas = []
        for name in ("r0", "r1"):
            api.users[name] = (name, None)
            environ = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "JOULIE_CLUSTER": CLUSTER.cluster,
                **address.as_settings(),
                "EXTENDER_BINDS": str(api.kubeconfig(place, name)),
            }
            replica = Replica(name, environ, place, place / f"{name}.log")
            replicas.append(replica)
            await stack.enter_async_context(background(replica.live(), name))
        race = Race(api, view, replicas, seed)
        await stack.enter_async_context(background(race.watched(), "watched"))
        yield race
    engine.dispose()


async def run(race: Race, bus: JetStreamLog, cards: int, pods: int) -> tuple[Any, list[str]]:
    """A cluster with `cards` cards, and `pods` pods that each request one."""
    nodes = [f"n{number}" for number in range(cards // PER_NODE)]
    says = producer("agent")
    for name in nodes:
        race.api.put("nodes", {"metadata": {"name": name}})
    seen = [
        GpuSeen(uuid=f"{name}-g{number}", node=name, model=MODEL, total_mb=40_960)
        for name in nodes
        for number in range(PER_NODE)
    ]
    await bus.publish([says.stamp(fact) for fact in seen])
    made = []
    for number in range(pods):
        pod = the_articles(f"p{number:03d}")
        made.append(race.api.put("pods", pod, "default"))
    await until(lambda: len(race.view.cluster_state.pods) == pods, 60)
    await until(lambda: len(race.view.cluster_state.gpus) == cards, 60)
    return made, nodes


async def holds(race: Race, cards: int) -> None:
    """Every card has a pod, the log and the API server agree, pending pods have a reason."""
    await until(lambda: race.claimed() == race.named() and len(race.named()) == cards)

    waiting = [n for n, pod in race.api.all("pods").items() if not pod["spec"].get("nodeName")]
    assert all(race.why.get(name) for name in waiting)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "and the broker is restarted"])
@pytest.mark.long
async def test_no_card_is_held_twice_or_lost_when_replicas_are_killed(
    restarts: bool,
    broker: Embedded,
    bus: JetStreamLog,
    writer: Engine,
    tmp_path: Path,
) -> None:
    async with racing(broker, bus, writer, tmp_path, seed=1) as race:
        pods, nodes = await run(race, bus, cards=16, pods=40)
        race.kills = {3: BEFORE, 8: AFTER, 12: BEFORE}
        async with background(_restarted(race, broker, restarts), "restart"):
            await race.place(pods, nodes, 40)

        await holds(race, 16)
        assert set(race.happened) == {BEFORE, AFTER}


async def _restarted(race: Race, broker: Embedded, restarts: bool) -> None:
    if restarts:
        await until(lambda: len(race.named()) > 3, 60)
        await broker.stop()
        await broker.start()
    await asyncio.Event().wait()


@pytest.mark.drill
@pytest.mark.parametrize("restarts", [False, True], ids=["", "and the broker is restarted"])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_five_hundred_pods_on_sixty_four_cards(
    seed: int,
    restarts: bool,
    broker: Embedded,
    bus: JetStreamLog,
    writer: Engine,
    tmp_path: Path,
) -> None:
    async with racing(broker, bus, writer, tmp_path, seed) as race:
        pods, nodes = await run(race, bus, cards=64, pods=500)
        moments = race.draw.sample(range(3, 60), 12)
        race.kills = {at: (BEFORE, AFTER)[number % 2] for number, at in enumerate(moments)}
        async with background(_restarted(race, broker, restarts), "restart"):
            await race.place(pods, nodes, 120)

        await holds(race, 64)
        assert set(race.happened) == {BEFORE, AFTER}
