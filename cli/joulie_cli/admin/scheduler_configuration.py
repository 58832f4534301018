"""`joulie scheduler-config`: the configuration of a kube-scheduler that calls this installation."""

import argparse
import asyncio
import json
from pathlib import Path

import msgspec

from joulie_bus.errors import SettingsError
from joulie_extender.protocol.scheduler_config import (
    DEFAULT_NAME,
    OWN_NAME,
    ClientFiles,
    Field,
    Options,
    configuration,
    extenders,
    text_of,
    tree_of,
)
from joulie_extender.settings import ServerSettings
from joulie_operator.cluster_settings import IN_CLUSTER, ClusterSettings, LeaseSettings
from joulie_projections.catalog_file import GpuResourceSettings
from joulie_projections.component.wiring import Wiring

SETTINGS = (ServerSettings, GpuResourceSettings, ClusterSettings, LeaseSettings)
SERVICE = "joulie-extender"
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104  not an address that a client can call


class _Port(msgspec.Struct):
    port: int = 0


class _ServiceSpec(msgspec.Struct, rename={"cluster_ip": "clusterIP"}):
    cluster_ip: str = ""
    ports: list[_Port] = []


class _Service(msgspec.Struct):
    spec: _ServiceSpec


def run(args: argparse.Namespace, wires: Wiring) -> int:
    options = options_of(args, wires)
    fields = configuration(options)
    if args.extenders:
        fields = (Field("extenders", extenders(options)),)
    as_json = args.output == "json"
    print(json.dumps(tree_of(fields)) if as_json else text_of(fields), end="")
    return 0


def options_of(args: argparse.Namespace, wires: Wiring) -> Options:
    server = wires.source.load(ServerSettings)
    namespace = args.namespace or wires.source.load(LeaseSettings).namespace
    is_own = args.mode == "own"
    url = args.url or _url(args, wires, namespace)
    return Options(
        url=url.rstrip("/"),
        configuration=args.configuration or ("split" if server.binds else "energy"),
        files=_files(args.certificates) if url.startswith("https:") else None,
        name=args.name or (OWN_NAME if is_own else DEFAULT_NAME),
        lease_namespace=namespace if is_own else "",
        percentage=args.percentage,
        weight=args.weight,
        deadline_ms=round(server.deadline_s * 1000),
        resources=wires.source.load(GpuResourceSettings).resources,
    )


def _files(directory: Path) -> ClientFiles:
    names = (Path(name).name for name in ClientFiles())
    return ClientFiles(*(str(directory / name) for name in names))


def _url(args: argparse.Namespace, wires: Wiring, namespace: str) -> str:
    """The Service in the cluster, if a cluster is named; else what the settings say."""
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    if cluster:
        return asyncio.run(_service_url(cluster, namespace, args.mode == "own"))
    server = wires.source.load(ServerSettings)
    host = server.hosts[0] if server.hosts else server.addr.host
    if host in EVERYWHERE:
        raise SettingsError(
            [
                f"EXTENDER_ADDR={server.addr} names no host that kube-scheduler can call: set "
                "EXTENDER_HOSTS, or give --url or --kubeconfig"
            ]
        )
    scheme = "https" if server.tls_cert else "http"
    return f"{scheme}://{_netloc(host, server.addr.port)}"


async def _service_url(cluster: str, namespace: str, is_pod: bool) -> str:
    """A kube-scheduler in a pod resolves the name; on the network of its host it may not."""
    from joulie_operator.kube.api_client import ApiServer

    path = f"/api/v1/namespaces/{namespace}/services/{SERVICE}"
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        found = await api.get(path)
    if found is None:
        raise SettingsError(
            [
                f"--kubeconfig: the namespace {namespace} has no Service {SERVICE}; the chart "
                "makes it unless scheduler.mode=none. Give the --namespace of the installation, "
                "or for an extender outside of the cluster its --url, as http://127.0.0.1:9876"
            ]
        )
    spec = msgspec.json.decode(found, type=_Service).spec
    by_name = is_pod or spec.cluster_ip == "None"
    host = f"{SERVICE}.{namespace}.svc" if by_name else spec.cluster_ip
    return f"https://{_netloc(host, spec.ports[0].port)}"


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
