"""Agents of the chart prove their node by the token of their pod, where the chart says so: the
rendered broker and service, with nats-server and a kube-apiserver."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from agent_pods import account, agent_token
from bus_kit import CLUSTER, power, producer
from chart_broker import ChartBroker, chart_broker, secret
from helm_chart import NAMESPACE, helm, of_kind, pod_specs, rendered
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role, inbox
from joulie_bus.streams.subjects import agent_name
from kube_real import Running

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
ON = ("--set", "callout.enabled=true")
AGENTS = ("DaemonSet/joulie-agent", "DaemonSet/joulie-agent-caps")
REVIEWER, SIGNER = "Deployment/joulie-callout", "Deployment/joulie-signer"
Tree = dict[str, Any]


def environment(spec: Tree) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}


def secrets_of(spec: Tree) -> list[Tree]:
    [volume] = [each for each in spec["volumes"] if each["name"] == "secrets"]
    return list(volume["projected"]["sources"])


def test_agents_have_a_token_for_the_broker_alone_and_no_password(home: Path) -> None:
    pods = pod_specs(rendered(home, *ON, "--set", "agent.caps=true"))
    for name in AGENTS:
        env = environment(pods[name])
        [source] = secrets_of(pods[name])

        assert not {"NATS_USER", "NATS_PASSWORD_FILE", "NATS_INBOX"} & set(env)
        assert env["NATS_CREDS_FILE"] == "/etc/joulie/secrets/token"
        assert source["serviceAccountToken"]["audience"] == "joulie-broker"
        assert pods[name]["automountServiceAccountToken"] is False


def test_without_the_value_nothing_of_it_is_rendered(home: Path) -> None:
    trees = rendered(home)

    assert not [tree for tree in trees if "callout" in tree["metadata"]["name"]]
    assert "callout" not in of_kind(trees, "ConfigMap")["joulie-nats"]["data"]["nats.conf"]
    assert not {"NATS_CALLOUT", "NATS_SIGNER"} & set(secret(trees, "joulie-nats-users"))
    assert SIGNER not in pod_specs(trees)


def test_the_service_may_review_tokens_and_nothing_else(home: Path) -> None:
    trees = rendered(home, *ON)
    [rule] = of_kind(trees, "ClusterRole")["joulie-callout"]["rules"]

    assert rule == {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["tokenreviews"],
        "verbs": ["create"],
    }
    assert "joulie-callout" not in of_kind(trees, "Role")
    assert pod_specs(trees)[REVIEWER]["serviceAccountName"] == "joulie-callout"


def test_nats_server_never_sees_the_key_of_the_issuer(home: Path) -> None:
    """An init container derives the public half."""
    spec = pod_specs(rendered(home, *ON))["StatefulSet/joulie-nats"]
    [container] = spec["containers"]
    [users, *_] = spec["initContainers"]

    assert "issuer" in [each["name"] for each in users["volumeMounts"]]
    assert "issuer" not in [each["name"] for each in container["volumeMounts"]]


def test_the_pod_with_the_key_of_the_issuer_has_its_own_user_and_nothing_else(home: Path) -> None:
    trees = rendered(home, *ON)
    specs = pod_specs(trees)
    with_key = {
        name
        for name, spec in specs.items()
        for volume in spec.get("volumes", ())
        if volume.get("secret", {}).get("secretName") == "joulie-callout-issuer"
    }
    signer = specs[SIGNER]
    kinds = {key for volume in signer["volumes"] for key in volume if key != "name"}
    policies = of_kind(trees, "NetworkPolicy")
    reaches = {
        name
        for name, policy in policies.items()
        for wanted in policy["spec"]["podSelector"].get("matchExpressions", ())
        if "signer" in wanted["values"] and "Egress" in policy["spec"]["policyTypes"]
    }

    assert with_key == {SIGNER, "StatefulSet/joulie-nats"}  # of which the init container reads it
    assert signer["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in signer
    assert kinds == {"emptyDir", "projected", "secret"}
    [source] = secrets_of(signer)
    assert [item["key"] for item in source["secret"]["items"]] == ["NATS_SIGNER"]
    assert reaches == {"joulie-to-broker"}


def test_a_broker_of_yours_needs_a_key_of_yours(home: Path) -> None:
    yours = ("--set", "nats.url=tls://n:4222,nats.usersSecret=u")
    words = ["template", "joulie", "deploy/chart", "--set", "generateSecrets=always", *ON, *yours]
    code, said = helm(words, home)
    assert code != 0
    assert "callout.existingSecret" in said

    trees = rendered(home, *ON, *yours, "--set", "callout.existingSecret=mine")
    [issuer] = [
        each["secret"]["secretName"]
        for each in pod_specs(trees)[SIGNER]["volumes"]
        if each["name"] == "issuer"
    ]
    assert issuer == "mine"
    assert "joulie-callout-issuer" not in of_kind(trees, "Secret")


@contextlib.asynccontextmanager
async def answering(nats: ChartBroker, server: Running) -> AsyncGenerator[None, None]:
    """Both services as their pods run them, with the rights that the chart gives them."""
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
        await server.put(server.place(kind, NAMESPACE), of_kind(nats.trees, kind)["joulie-callout"])
    processes = [
        await service(nats, SIGNER),
        await service(nats, REVIEWER, KUBECONFIG=str(server.kubeconfig("callout"))),
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))


async def service(nats: ChartBroker, name: str, **more: str) -> Process:
    spec = pod_specs(nats.trees)[name]
    [source] = secrets_of(spec)
    [item] = source["secret"]["items"]
    place = nats.place / name.replace("/", "-")
    place.mkdir()
    password = place / item["path"]
    password.write_bytes(secret(nats.trees, source["secret"]["name"])[item["key"]])
    env = environment(spec) | {
        "NATS_URL": f"tls://localhost:{nats.port}",
        "NATS_CA_FILE": str(nats.place / "ca.crt"),
        "NATS_PASSWORD_FILE": str(password),
        "METRICS_ADDR": f"127.0.0.1:{free_port()}",
        "JOULIE_DATA": str(place / "data"),
        "PATH": os.environ["PATH"],
        **more,
    }
    args = [each.replace("/etc/joulie", str(nats.place)) for each in spec["containers"][0]["args"]]
    command = (sys.executable, "-m", "joulie_cli.main", *args)
    return await asyncio.create_subprocess_exec(*command, env=env)


def as_role(nats: ChartBroker, role: Role) -> Address:
    password = secret(nats.trees, "joulie-nats-users")[f"NATS_{role.upper()}"].decode()
    return Address(
        url=f"tls://localhost:{nats.port}",
        user=role,
        password=password,
        inbox=inbox(role),
        ca_file=str(nats.place / "ca.crt"),
    )


def with_token(nats: ChartBroker, token: str, node: str) -> Address:
    file = nats.place / f"token-{node}"
    file.write_text(token)
    return Address(
        url=f"tls://localhost:{nats.port}",
        token_file=str(file),
        inbox=inbox(Role.AGENT, node),
        ca_file=str(nats.place / "ca.crt"),
    )


async def connected(address: Address) -> Connection:
    """Once the service answers."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Unreachable):
                return await Connection.open(address, "agent", 3)


async def publishes(connection: Connection, node: str) -> bool:
    async with asyncio.timeout(60), Publisher.on(connection) as publisher:
        try:
            await publisher.publish([producer(agent_name(node)).stamp(power(node, 1))])
        except BrokerRefused:
            return False
    return True


async def test_the_token_of_a_pod_of_the_chart_reports_for_its_own_node_alone(
    home: Path, tmp_path: Path, server: Running
) -> None:
    (tmp_path / "nats").mkdir()
    async with chart_broker(home, tmp_path / "nats", *ON) as nats:
        await server.put(server.place("Namespace"), {"metadata": {"name": NAMESPACE}})
        await account(server, space=NAMESPACE)
        token = await agent_token(server, "n1", space=NAMESPACE)
        admin = await Connection.open(as_role(nats, Role.ADMIN), "test")
        await ensure(admin, CLUSTER)
        await admin.close()
        async with answering(nats, server):
            agent = await connected(with_token(nats, token, "n1"))
            own, others = await publishes(agent, "n1"), await publishes(agent, "n2")
            await agent.close()
            with pytest.raises(Unreachable):
                await Connection.open(with_token(nats, f"{token[:-4]}AAAA", "n3"), "agent", 3)

    assert (own, others) == (True, False)


async def test_users_with_passwords_need_no_service(home: Path, tmp_path: Path) -> None:
    async with chart_broker(home, tmp_path, *ON) as nats:
        for role in Role:
            await (await Connection.open(as_role(nats, role), "part", 5)).close()
