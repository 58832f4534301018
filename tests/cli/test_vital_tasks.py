"""Each vital task of each component, made to raise in a process of its own."""

import asyncio
import contextlib
import datetime
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from authority import Authority
from bus_kit import CLUSTER, running_broker, until
from failing_tasks import ATTEMPT, PLACE, FailingTasks, attempt
from joulie_bus.broker.embedded import Embedded
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.vital_tasks import OnFailure, VitalTask
from joulie_bus.streams.roles import Role
from joulie_forked import Command, joulie
from kube_api import ApiServer
from kube_builders import granted, namespace, server_of_four

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 120.0
SEEN_WITHIN_S = 30.0  # of a busy machine, by the clock of the process that failed
ROLES = {
    "agent-caps": Role.AGENT,
    "archive": Role.ARCHIVIST,
    "ledger": Role.AUDITOR,
    "shadow": Role.EXTENDER,
}
WITHOUT_A_BROKER = {"admission", "up"}
AT_TIMES = {"archive": {"resend", "pull"}, "ledger": {"pull"}}  # while they read
COMPONENTS = sorted({name for task in VitalTask for name in task.value.components} - {"demo"})


class Place(NamedTuple):
    """What a component finds: a data directory, a broker, an API server, certificates."""

    path: Path
    broker: Embedded
    server: ApiServer
    tasks: FailingTasks

    @property
    def data(self) -> Path:
        return self.path / "data"

    def environ(self, component: str, metrics: str = "") -> dict[str, str]:
        address = self.broker.address_of(ROLES.get(component) or Role(component))
        return {
            **os.environ,
            "JOULIE_CLUSTER": CLUSTER.cluster,
            **address.as_settings(),
            "METRICS_ADDR": metrics or f"127.0.0.1:{free_port()}",
            "LOG_FORMAT": "json",
        }

    def options(self, component: str) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        """The options and settings with which all of its tasks run."""
        cert, key = self.path / "server.crt", self.path / "server.key"
        kubeconfig = self.path / "kubeconfig-operator"
        match component:
            case "extender":
                return (), {
                    "EXTENDER_ADDR": f"127.0.0.1:{free_port()}",
                    "EXTENDER_BINDS": "simulated",
                    "EXTENDER_TLS_CERT_FILE": str(cert),
                    "EXTENDER_TLS_KEY_FILE": str(key),
                }
            case "operator":
                return ("--kubeconfig", kubeconfig), {
                    "POWER_CONTROLLERS": str(self.path / "controllers.toml"),
                    "ENABLE_FACILITY_METRICS": "true",
                    "FACILITY_HTTP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
                    "GRID_SOURCE": str(self.path / "tariff.csv"),
                    "NODE_POWER_ADDRESS": f"http://127.0.0.1:{free_port()}",
                    "POLICY_TYPE": "consolidate_and_sleep",
                    "POLICY_NUMBERS": "empty_below=0.2,evict_per_min=6",
                }
            case "admission":
                words = ("--kubeconfig", kubeconfig, "--cert", cert, "--key", key)
                return (*words, "--listen", f"127.0.0.1:{free_port()}"), {}
            case "archive":
                return ("--every", "1h", "--dir", self.path / "archive"), {}
            case "console":
                return (), {
                    "CONSOLE_ADDR": f"127.0.0.1:{free_port()}",
                    "NOTIFY_URL": f"http://127.0.0.1:{free_port()}",
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
                }
            case "simulator":
                return ("--nodes", "20"), {}
            case "up":
                addresses = ("EXTENDER_ADDR", "CONSOLE_ADDR")
                return (), {name: f"127.0.0.1:{free_port()}" for name in addresses}
            case _:
                return self.few_options(component), {}

    def few_options(self, component: str) -> Sequence[str | Path]:
        """Of components without settings."""
        limits = ("--limits", self.path / "limits.json")
        return ("--caps", *limits, "--host-root", self.path) if component == "agent-caps" else ()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place, None]:
    Authority.made(tmp_path, "ours").issue(tmp_path, "server")
    (tmp_path / "tariff.csv").write_text("from,price,currency\n2025-01-01,0.25,EUR\n")
    for name in ("user", "password"):
        (tmp_path / name).write_text("joulie\n")
    (tmp_path / "controllers.toml").write_text(
        '[[controller]]\nkind = "redfish"\nswitches = true\n'
        'address = "https://{node}.bmc.example"\n'
        f'user_file = "{tmp_path}/user"\npassword_file = "{tmp_path}/password"\n'
    )
    server = server_of_four("operator", granted("rbac.yaml"))
    server.put("namespaces", namespace("team", "standard"))
    await asyncio.to_thread(joulie, "migrate", "--data", tmp_path / "data")
    async with running_broker(tmp_path / "broker") as broker, server.listening():
        server.kubeconfig(tmp_path, "operator")
        yield Place(tmp_path, broker, server, FailingTasks(tmp_path / "tasks"))


class Component:
    def __init__(self, place: Place, name: str) -> None:
        self._metrics = f"127.0.0.1:{free_port()}"
        self._kept = place.path / f"kept-{name}"
        self._kept.mkdir(exist_ok=True)
        for file in self._kept.iterdir():
            file.unlink()
        words, settings = place.options(name)
        environ = place.environ("extender" if name in WITHOUT_A_BROKER else name, self._metrics)
        self.command = Command(
            [name.removesuffix("-caps"), "--data", place.data, *words],
            {**environ, **settings, PLACE: str(place.tasks.place)},
            self._kept,
            constants={ATTEMPT: attempt},
        )

    def readiness(self) -> str:
        """`ok`, or why it is not ready; empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self._metrics}/readyz") as reply:
                return str(reply.read().decode()).strip()
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()
        except OSError:
            return ""

    def failures(self) -> list[dict[str, Any]]:
        found = []
        for line in self.command.said().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [
            each for each in found if isinstance(each, dict) and each.get("event") == "task_failed"
        ]


@contextlib.asynccontextmanager
async def running(place: Place, name: str) -> AsyncGenerator[Component, None]:
    place.tasks.forget()
    component = Component(place, name)
    try:
        yield component
    finally:
        await asyncio.to_thread(component.command.stop)


@contextlib.asynccontextmanager
async def projecting(place: Place, component: str) -> AsyncGenerator[None, None]:
    """What every component but the projector needs beside it."""
    kept = place.path / "kept-beside"
    kept.mkdir()
    words: list[str | Path] = ["projector", "--data", place.data]
    command = Command(words, place.environ("projector"), kept)
    try:
        yield
    finally:
        await asyncio.to_thread(command.stop)


async def so(condition: Callable[[], bool]) -> None:
    await until(condition, PATIENCE_S)


async def in_thread(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


def tasks_of(component: str) -> list[VitalTask]:
    return [task for task in VitalTask if component in task.value.components]


def restarted(component: str) -> list[VitalTask]:
    return [task for task in tasks_of(component) if task.on_failure is OnFailure.RESTARTS]


def ending(component: str) -> list[VitalTask]:
    return [task for task in tasks_of(component) if task.on_failure is OnFailure.ENDS]


def check_line(component: Component, place: Place, task: VitalTask) -> None:
    """One line that names the task, at the time of the failure."""
    lines = [line for line in component.failures() if line["task"] == str(task)]
    assert len(lines) == 1, component.command.said()
    at = datetime.datetime.fromisoformat(lines[0]["timestamp"]).timestamp()
    assert 0 <= at - place.tasks.failed_at(task) + 0.001 <= SEEN_WITHIN_S


async def check_restarted(place: Place, name: str) -> None:
    async with running(place, name) as component:
        expected = set(map(str, tasks_of(name)))
        await so(lambda: place.tasks.running() >= expected)
        more = place.tasks.running() - expected
        assert more <= AT_TIMES.get(name, set()), "the table names the components of each task"
        for task in restarted(name):
            await check_start_after(component, place, task, has_probes=name != "up")


async def check_start_after(
    component: Component, place: Place, task: VitalTask, *, has_probes: bool
) -> None:
    wanted = f"failed and is restarted: {task}"
    if has_probes:
        await in_thread(lambda: component.readiness() == "ok")
    place.tasks.fail(task)
    await so(lambda: str(task) in {line["task"] for line in component.failures()})
    if has_probes:
        await in_thread(lambda: component.readiness() == wanted)
        await in_thread(lambda: component.readiness() == "ok")
    check_line(component, place, task)


async def check_ends(place: Place, name: str, task: VitalTask) -> None:
    async with running(place, name) as component:
        await so(lambda: str(task) in place.tasks.running())
        place.tasks.fail(task)
        assert await asyncio.to_thread(component.command.wait, PATIENCE_S)
        assert component.command.done().returncode not in (0, 130)
        check_line(component, place, task)


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.long
async def test_a_task_that_raises_ends_its_component_or_makes_it_unready(
    name: str, place: Place
) -> None:
    alone = name == "projector" or name in WITHOUT_A_BROKER
    async with contextlib.nullcontext() if alone else projecting(place, name):
        await check_restarted(place, name)
        for task in ending(name):
            await check_ends(place, name, task)
