"""Runs a kube-apiserver with its own etcd, from a directory of programs.

    make kube && .venv/bin/python -m pytest tests/cluster

KUBE_BIN may name another directory of all programs, such as that of `make kube VERSION=1.37.2`;
KUBEBUILDER_ASSETS one of servers alone, such as `setup-envtest` fetches. The server uses loopback,
free ports, TLS, tokens and RBAC; the account of the operator has exactly the rights of
deploy/rbac.yaml.
"""

import asyncio
import contextlib
import ipaddress
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from authority import Authority
from joulie_bus.errors import KubernetesRefused
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.ports import free_port
from joulie_operator.kube.api_client import CONFLICT, NOT_FOUND, ApiServer, ApiUnreachable
from joulie_operator.resources.custom_resources import GPUS, NODEHARDWARES, NODETWINS
from kube_versions import Differences, differences, reported

ASSETS, SCHEDULER, RULES = "KUBEBUILDER_ASSETS", "KUBE_SCHEDULER", "KUBE_RULES"
CONTROLLERS = "KUBE_CONTROLLER_MANAGER"  # built on request, as for `make cluster`
HELM, KUBECTL, PROMTOOL = "HELM", "KUBECTL", "PROMTOOL"
ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BIN = Path(os.environ.get("KUBE_BIN") or ROOT / ".kube/bin").absolute()
BUILT = {
    ASSETS: BIN,
    SCHEDULER: BIN / "kube-scheduler",
    CONTROLLERS: BIN / "kube-controller-manager",
    RULES: BIN / "kube-rules",
    HELM: BIN / "helm",
    KUBECTL: BIN / "kubectl",
    PROMTOOL: BIN / "promtool",
}
APISERVERS = "KUBE_APISERVERS"  # a directory of directories, each named for its version
OLDER = ROOT / ".kube/apiservers"
START_PATIENCE_S = 90.0
# The first one has the address of the server, the others those that follow.
KUBELETS = ("n1", "n2")
AT_ONCE = 32  # requests of one program
OUTPUT_TAIL = 2000  # characters of a failed program's output
TOKENS = {
    "admin": ("admin", "system:masters"),
    "operator": ("system:serviceaccount:joulie-system:joulie-operator", ""),
    "extender": ("system:serviceaccount:joulie-system:joulie-extender", ""),
    "test": ("system:serviceaccount:joulie-system:joulie-test", ""),
    "release": ("system:serviceaccount:joulie-system:joulie-release", ""),
    "admission": ("system:serviceaccount:joulie-system:joulie-admission", ""),
    "callout": ("system:serviceaccount:joulie-system:joulie-callout", ""),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    **{f"kubelet-{name}": (f"system:node:{name}", "system:nodes") for name in KUBELETS},
    "viewer": ("viewer", ""),
}
LOOPBACK = "127.0.0.1"
SERVICES = "10.0.0.0/24"  # the first address is that of the API server, for pods
API_SERVICE = "10.0.0.1"
# Nodes without a kubelet stay as they were created; pods need no service account.
WITHOUT_KUBELETS = [
    f"--bind-address={LOOPBACK}",
    "--advertise-address=192.0.2.1",  # unused; loopback is refused
    "--endpoint-reconciler-type=none",
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
]
ASKED = "asked.jsonl"  # requests, one per line
WATCHED = ("operator", "test")  # the accounts whose requests are written down
Tree = dict[str, Any]
WRITTEN_DOWN: Tree = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "users": [TOKENS[name][0] for name in WATCHED]},
        {"level": "None"},
    ],
}


class ProgramMissing(Exception):
    """Why a test cannot run on this machine."""


def program(variable: str, name: str = "") -> Path:
    """The path in an environment variable, else the program that `make kube` has built."""
    path = Path(os.environ.get(variable) or BUILT[variable]) / name
    if not os.access(path, os.X_OK):
        raise ProgramMissing(f"no program {path}; `make kube`, or set {variable}")
    return path


def program_or_skip(variable: str, *names: str) -> Path:
    """The same for a test, which is skipped without them; the last program of these names."""
    try:
        return [program(variable, name) for name in names or ("",)][-1]
    except ProgramMissing as missing:
        pytest.skip(str(missing))


async def all_of(calls: Iterable[Awaitable[object]]) -> None:
    """Runs the calls, AT_ONCE at a time."""
    waiting = iter(calls)

    async def some() -> None:
        for call in waiting:
            await call

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())


def older_server(minor: str) -> Path:
    """The kube-apiserver of an older version, such as 1.33, that `make apiservers` has built."""
    place = Path(os.environ.get(APISERVERS) or OLDER)
    found = sorted(place.glob(f"{minor}.*/kube-apiserver"))
    if not found:
        raise ProgramMissing(f"no {minor}.*/kube-apiserver in {place}; `make apiservers`")
    return found[-1]


@dataclass
class Running:
    """A running server, with the access of its administrator."""

    api: ApiServer
    directory: Path
    command: Sequence[str]
    process: Process
    version: str  # such as v1.34.1

    @contextlib.asynccontextmanager
    async def gone(self) -> AsyncGenerator[None, None]:
        """Stops the server inside of the block; etcd keeps its data."""
        self.process.kill()
        await self.process.wait()
        yield
        self.process = await _start(self.command, self.directory)
        await _ready(self)

    @property
    def differences(self) -> Differences:
        return differences(self.version)

    def place(self, kind: str, namespace: str = "") -> str:
        """The path of the objects of a kind."""
        return PLACES[kind].format(namespace=namespace, policies=self.differences.policies)

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def asked(self, user: str = "operator") -> list[Tree]:
        """All requests of one account for objects: verb, object, status code. What the server
        serves, such as the versions of an API, is no object."""
        lines = (self.directory / ASKED).read_bytes().splitlines()
        trees = map(msgspec.json.decode, lines)
        ours = (tree for tree in trees if tree["user"]["username"] == TOKENS[user][0])
        return [tree for tree in ours if "objectRef" in tree]

    async def all(self, path: str) -> dict[str, Tree]:
        pages = [page async for page in self.api.pages(path)]
        trees = [msgspec.json.decode(item) for page in pages for item in page.items]
        return {tree["metadata"]["name"]: tree for tree in trees}

    async def put(self, path: str, *trees: Tree) -> None:
        for tree in trees:
            await self.api.create(path, tree)


@contextlib.asynccontextmanager
async def real_server(
    directory: Path,
    assets: Path,
    *,
    bare: bool = False,
    address: str = LOOPBACK,
    flags: Sequence[str] = (),
    apiserver: Path | None = None,
) -> AsyncGenerator[Running, None]:
    """A server with the manifests of deploy/ applied, or a bare one. A server with another address
    than loopback has kubelets, and pods reach it. `apiserver` is of another version than `assets`.
    """
    directory.mkdir(parents=True)
    ports = [free_port() for _ in range(3)]
    authority = Authority.made(directory, "authority")
    cert, key = authority.issue(directory, "kube-apiserver", address, API_SERVICE)
    (directory / "audit.yaml").write_text(yaml.safe_dump(WRITTEN_DOWN))
    _write_users(directory, f"https://{address}:{ports[0]}", authority.file)
    place = (
        WITHOUT_KUBELETS if address == LOOPBACK else _beside_kubelets(authority, directory, address)
    )
    server = apiserver or assets / "kube-apiserver"
    version = await asyncio.to_thread(reported, server)
    place = [*place, *differences(version).flags, *flags]
    command = [str(server), *_apiserver(directory, cert, key, ports), *place]
    async with (
        started([str(assets / "etcd"), *_etcd(directory, *ports[1:])], directory),
        ApiServer.of(directory / "admin.kubeconfig") as api,
    ):
        running = Running(api, directory, command, await _start(command, directory), version)
        try:
            await _ready(running)
            await _made(running, PLACES["Namespace"], {"metadata": {"name": "default"}})
            if not bare:
                await _deployed(running)
            yield running
        finally:
            await _end(running.process)


def _etcd(directory: Path, client: int, peer: int) -> list[str]:
    here, among = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={directory / 'etcd-data'}",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={among}",
        f"--initial-advertise-peer-urls={among}",
        f"--initial-cluster=default={among}",
    ]


def _apiserver(directory: Path, cert: Path, key: Path, ports: Sequence[int]) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{ports[1]}",
        f"--secure-port={ports[0]}",
        f"--tls-cert-file={cert}",
        f"--tls-private-key-file={key}",
        f"--cert-dir={directory}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={cert}",
        f"--service-account-signing-key-file={key}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--audit-log-path={directory / ASKED}",
        f"--audit-policy-file={directory / 'audit.yaml'}",
    ]


def _beside_kubelets(authority: Authority, directory: Path, address: str) -> list[str]:
    cert, key = authority.issue(directory, "kubelet-client")
    first = ipaddress.ip_address(address)
    authority.issue(directory, "kubelet", *(str(first + each) for each in range(len(KUBELETS))))
    return [
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--kubelet-client-certificate={cert}",
        f"--kubelet-client-key={key}",
        f"--kubelet-certificate-authority={authority.file}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _write_users(directory: Path, url: str, authority: Path) -> None:
    (directory / "tokens.csv").write_text(
        "".join(f'{token},{user},{user},"{group}"\n' for token, (user, group) in TOKENS.items())
    )
    for user in TOKENS:
        _write_kubeconfig(directory / f"{user}.kubeconfig", url, authority, user)


def _write_kubeconfig(path: Path, url: str, authority: Path, token: str) -> None:
    server = {"server": url, "certificate-authority": str(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": token}}],
        "clusters": [{"name": "here", "cluster": server}],
        "users": [{"name": token, "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(config))


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], directory: Path, log: str = ""
) -> AsyncGenerator[Process, None]:
    """Runs a program inside of the block."""
    process = await _start(command, directory, log)
    try:
        yield process
    finally:
        await _end(process)


async def _start(command: Sequence[str], directory: Path, log: str = "") -> Process:
    """Starts a program with its output in a file, in a session of its own, as services have: Linux
    may schedule by session, and three programs in one would share the CPU time of one.
    """
    with (directory / f"{log or Path(command[0]).name}.log").open("ab") as words:
        return await asyncio.create_subprocess_exec(
            *command,
            stdout=words,
            stderr=words,
            preexec_fn=die_with_parent,
            start_new_session=True,
        )


async def _end(process: Process) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            process.send_signal(sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 60)


async def _ready(running: Running) -> None:
    process = running.process
    async with asyncio.timeout(START_PATIENCE_S):
        while process.returncode is None:
            with contextlib.suppress(KubernetesRefused, *ApiUnreachable):
                if await running.api.get("/readyz") is not None:
                    return
            await asyncio.sleep(0.2)
    output = (running.directory / "kube-apiserver.log").read_text(errors="replace")[-OUTPUT_TAIL:]
    raise AssertionError(f"kube-apiserver ended with {process.returncode}: {output}")


# --- what is deployed -------------------------------------------------------------------------

_POLICIES = "/apis/admissionregistration.k8s.io/{policies}"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "MutatingAdmissionPolicy": f"{_POLICIES}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{_POLICIES}/mutatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/"
    "mutatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/"
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/"
    "validatingadmissionpolicybindings",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{namespace}}/rolebindings",
}


async def _deployed(running: Running) -> None:
    """Applies the manifests. The server creates "default" itself."""
    for file in [*sorted((DEPLOY / "crds").glob("*.yaml")), DEPLOY / "rbac.yaml"]:
        for tree in filter(None, yaml.safe_load_all(file.read_text())):
            namespace = tree["metadata"].get("namespace", "")
            await _made(running, PLACES[tree["kind"]].format(namespace=namespace), tree)
    async with asyncio.timeout(START_PATIENCE_S):
        for path in (NODETWINS, NODEHARDWARES, GPUS):
            while not await _is_served(running, path):
                await asyncio.sleep(0.2)


async def _made(running: Running, path: str, tree: Tree) -> None:
    """Creates the object; retries, because the server creates its own namespaces lazily."""
    try:
        await running.put(path, tree)
    except KubernetesRefused as error:
        if error.code != CONFLICT:
            raise


async def _is_served(running: Running, path: str) -> bool:
    try:
        await running.all(path)
    except KubernetesRefused as error:
        if error.code != NOT_FOUND:
            raise
        return False
    return True
