"""`kubectl joulie` and `joulie doctor` against a real kube-apiserver, kube-scheduler and console.

The API server forwards requests to Services only beyond loopback. Here it reaches them through a
tunnel, as on clusters whose control plane has another network than the nodes.
"""

import asyncio
import base64
import contextlib
import json
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_answers.doctor.judgement.limits import DISK_WARN
from joulie_bus.runtime.ports import free_port
from joulie_operator.desired.pod_events import REASON
from joulie_process import joulie
from kube_builders import schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, profiles_are, wait_until
from kube_real import (
    ASSETS,
    DEPLOY,
    PLACES,
    SCHEDULER,
    Running,
    Tree,
    program_or_skip,
    real_server,
)
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
NAMESPACE, TOKEN = "joulie-system", "a-token-of-some-length"
POD_IP = "10.1.1.7"  # behind the tunnel, it is this machine
MERGE = "application/merge-patch+json"
ENDPOINTS = f"/api/v1/namespaces/{NAMESPACE}/endpoints"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
BINDINGS = PLACES["ClusterRoleBinding"]
PLACED = re.compile(r"\n  outcome    bound to n\d")  # which node, it decides


class Ran(NamedTuple):
    code: int
    out: str
    err: str


async def run(module: str, *words: str) -> Ran:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())


def egress(socket: Path) -> Tree:
    """The API server reaches pods and Services through this socket, by HTTP CONNECT."""
    transport = {"uds": {"udsName": str(socket)}}
    connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


@contextlib.asynccontextmanager
async def tunnel(socket: Path) -> AsyncGenerator[None, None]:
    """Connects whatever the API server asks for with the same port of this machine."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        port = int(head.split(b" ")[1].rpartition(b":")[2])
        there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copied(reader, there[1]), _copied(there[0], writer))

    server = await asyncio.start_unix_server(forward, socket)
    async with server:
        yield


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Running, None]:
    programs = program_or_skip(ASSETS, "kube-apiserver").parent
    program_or_skip(SCHEDULER)
    socket, config = tmp_path / "tunnel", tmp_path / "egress.yaml"
    config.write_text(yaml.safe_dump(egress(socket)))
    async with (
        tunnel(socket),
        real_server(
            tmp_path / "server", programs, flags=[f"--egress-selector-config-file={config}"]
        ) as running,
    ):
        await running.put(NODES, *[schedulable(f"n{number}") for number in range(4)])
        yield running


async def with_a_console(server: Running, port: int) -> None:
    """The objects of the chart that lead to the console, without a kubelet."""
    for kind, tree in console_objects(port):
        await server.put(PLACES[kind].format(namespace=NAMESPACE), tree)
    pods = PLACES["Pod"].format(namespace=NAMESPACE)
    name = {"name": "joulie-console-0"}
    spec = {"nodeName": "n0", "containers": [{"name": "console", "image": "none"}]}
    await server.put(pods, {"metadata": name, "spec": spec})
    status = {"status": {"podIP": POD_IP, "podIPs": [{"ip": POD_IP}]}}
    await server.api._send("PATCH", f"{pods}/{name['name']}/status", {}, status, MERGE)
    target = {"kind": "Pod", "namespace": NAMESPACE, **name}
    for path, tree in addresses(target, {"name": "http", "port": port}):
        await server.put(path, tree)


def addresses(target: Tree, port: Tree) -> list[tuple[str, Tree]]:
    """Where the Service leads, as the controllers write it: a server of 1.34 reads the Endpoints,
    one of 1.37 reads the EndpointSlices."""
    at, of = {"targetRef": target}, {"kubernetes.io/service-name": "joulie-console"}
    subset = {"addresses": [at | {"ip": POD_IP}], "ports": [port]}
    endpoints = {"metadata": {"name": "joulie-console"}, "subsets": [subset]}
    part = {
        "metadata": {"name": "joulie-console-1", "labels": of},
        "addressType": "IPv4",
        "endpoints": [at | {"addresses": [POD_IP]}],
        "ports": [port],
    }
    return [(ENDPOINTS, endpoints), (SLICES, part)]


def console_objects(port: int) -> list[tuple[str, Tree]]:
    data = {"token": base64.b64encode(TOKEN.encode()).decode()}
    ports = [{"name": "http", "port": 9870, "targetPort": port}]
    role = yaml.safe_load((DEPLOY / "rbac-viewer.yaml").read_text())
    return [
        ("ClusterRole", role),
        ("Secret", {"metadata": {"name": "joulie-console-token"}, "data": data}),
        ("Service", {"metadata": {"name": "joulie-console"}, "spec": {"ports": ports}}),
    ]


@contextlib.asynccontextmanager
async def scheduled(server: Running, tmp_path: Path) -> AsyncGenerator[Path, None]:
    """A pod that was placed through the extender; yields the data directory."""
    extender, port = f"127.0.0.1:{free_port()}", free_port()
    (tmp_path / "token").write_text(TOKEN)
    environ = {
        "EXTENDER_ADDR": extender,
        "CONSOLE_ADDR": f"127.0.0.1:{port}",
        "CONSOLE_TOKEN_FILE": str(tmp_path / "token"),
        "APPLY_RATE": "300,pod-events=100",  # an Event on each placed pod
    }
    data = tmp_path / "data"
    async with (
        joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **environ),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        await wait_until(profiles_are(server, performance=2, eco=2))
        containers = [{"name": "c", "image": "none"}]
        pod: Tree = {"metadata": {"name": "fast"}, "spec": {"containers": containers}}
        await server.put(PODS, pod)
        await with_a_console(server, port)
        yield data


async def test_the_plugin_reads_the_console_with_the_rights_of_a_viewer(
    server: Running, tmp_path: Path
) -> None:
    config = ["--kubeconfig", str(server.kubeconfig("viewer"))]
    async with scheduled(server, tmp_path):
        refused = await run("joulie_cli.kubectl", "explain", "fast", *config)
        await server.put(BINDINGS, binding("joulie-viewer", "viewer"))

        said: list[Ran] = []

        async def explains() -> bool:
            done = await run("joulie_cli.kubectl", "explain", "fast", "-n", "default", *config)
            said.append(done)
            return done.code == 0 and PLACED.search(done.out) is not None

        try:
            await wait_until(explains)
        except TimeoutError:
            pytest.fail(f"the last answer: {said[-1]}")
        answers = {
            name: json.loads((await run("joulie_cli.kubectl", name, "-o", "json", *config)).out)
            for name in ("twins", "plans", "gpus", "decisions")
        }
        report = await run("joulie_cli.kubectl", "report", "-o", "json", *config)
        tables = [
            await run("joulie_cli.kubectl", *words, *config)
            for words in (["twins"], ["twins", "n0"], ["plans"], ["gpus"], ["decisions"])
        ]

    assert refused.code == 2
    assert "Bind the ClusterRole joulie-viewer" in refused.err
    assert len(answers["twins"]["items"]) == 4
    assert answers["plans"]["items"]
    assert {each["verb"] for each in answers["decisions"]["items"]} >= {"filter", "prioritize"}
    assert [each.code for each in tables] == [0] * 5, tables
    assert "default/fast" in tables[-1].out
    assert report.code == 2
    assert "/v1/report" in report.err


async def test_what_the_console_refuses_is_reported_with_its_words(
    server: Running, tmp_path: Path
) -> None:
    config = ["--kubeconfig", str(server.kubeconfig("admin"))]
    said: list[Ran] = []
    async with scheduled(server, tmp_path):

        async def is_refused_by_the_console() -> bool:
            said.append(await run("joulie_cli.kubectl", "explain", "nix", *config))
            return "joulie-system/joulie-console refused /v1/pods/" in said[-1].err

        await wait_until(is_refused_by_the_console)

    assert said[-1].code == 2
    assert "No decision about" in said[-1].err
    assert "Is Joulie installed there" not in said[-1].err


def binding(role: str, user: str) -> Tree:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": f"{role}-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


async def events_about(server: Running, pod: str) -> list[Tree]:
    found = await server.all("/apis/events.k8s.io/v1/namespaces/default/events")
    about = [tree for tree in found.values() if tree.get("regarding", {}).get("name") == pod]
    return [tree for tree in about if tree["reason"] == REASON]


async def test_a_placed_pod_gets_one_event_that_names_the_entry(
    server: Running, tmp_path: Path
) -> None:
    async with scheduled(server, tmp_path):

        async def has_an_event() -> bool:
            return bool(await events_about(server, "fast"))

        await wait_until(has_an_event)
        [event] = await events_about(server, "fast")

    pod = (await server.all(PODS))["fast"]
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert event["note"].startswith(f"Placed on {pod['spec']['nodeName']}, ")
    assert re.search(r"with \d+.* \(entry \d+\)", event["note"])


async def test_a_pod_that_fits_one_node_gets_an_event_from_the_filter(
    server: Running, tmp_path: Path
) -> None:
    """kube-scheduler asks for no scores then."""
    one = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [one]}}
    spec: Tree = {
        "containers": [{"name": "c", "image": "none"}],
        "affinity": {"nodeAffinity": required},
    }
    async with scheduled(server, tmp_path):
        await server.put(PODS, {"metadata": {"name": "lone"}, "spec": spec})

        async def has_an_event() -> bool:
            return bool(await events_about(server, "lone"))

        await wait_until(has_an_event)
        [event] = await events_about(server, "lone")

    assert re.match(r"Placed on n1, the only node for .* \(entry \d+\)", event["note"])


async def examined(server: Running, user: str, *words: str) -> dict[str, dict[str, Any]]:
    """The findings by check."""
    config = ["--kubeconfig", str(server.kubeconfig(user))]
    done = await run("joulie_cli.main", "doctor", "-o", "json", *config, *words)
    tree = json.loads(done.out)
    assert done.code == tree["exit_code"]
    return {each["check"]: each for each in tree["findings"]}


async def test_the_doctor_examines_a_running_installation(server: Running, tmp_path: Path) -> None:
    async with scheduled(server, tmp_path) as data:

        async def is_placed() -> bool:
            found = await examined(server, "admin", "--data", str(data))
            return bool(found["calls of kube-scheduler"]["level"] == "ok")

        await wait_until(is_placed)
        found = await examined(server, "admin", "--data", str(data))
        of_operator = await examined(server, "operator", "--data", str(data))

    levels = {name: each["level"] for name, each in found.items()}
    usage = shutil.disk_usage(tmp_path)
    is_disk_short = usage.free < DISK_WARN * usage.total
    assert {name for name, level in levels.items() if level != "ok"} == {
        "kube-scheduler",  # it is not a pod here
        "archive",  # `joulie up` without ARCHIVE_DIR has none
        *(["disk"] if is_disk_short else []),
    }, found
    assert {"clock of the API server", "CRD nodetwins.joulie.io", "broker"} <= levels.keys()
    assert of_operator["rights of the operator"]["level"] == "ok"
    assert of_operator["CRD nodetwins.joulie.io"]["seen"].startswith("not seen: ")


async def test_the_doctor_names_what_is_missing(server: Running) -> None:
    role = f"{PLACES['ClusterRole']}/joulie-operator"
    before = await examined(server, "operator")
    rules = [rule for rule in await rules_of(server) if "nodetwins" not in rule["resources"]]
    await server.api._send("PATCH", role, {}, {"rules": rules}, MERGE)
    await server.api.delete(f"{PLACES['CustomResourceDefinition']}/gpus.gpu.mle.com")

    async def is_refused() -> bool:
        found = await examined(server, "operator")
        return bool(found["rights of the operator"]["level"] == "fail")

    await wait_until(is_refused)
    found = await examined(server, "operator")
    of_admin = await examined(server, "admin")

    assert before["rights of the operator"]["level"] == "ok"
    assert "patch nodetwins.joulie.io" in found["rights of the operator"]["seen"]
    assert of_admin["CRD gpus.gpu.mle.com"]["seen"] == "missing"
    assert of_admin["rights of the operator"]["level"] == "ok"  # an administrator may do all


async def rules_of(server: Running) -> list[dict[str, Any]]:
    found = await server.api.get(f"{PLACES['ClusterRole']}/joulie-operator")
    return list(json.loads(found or b"{}")["rules"])
