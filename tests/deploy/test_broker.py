"""The broker of the chart: its configuration, its users and its certificates, with nats-server."""

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from chart_broker import ChartBroker, chart_broker, secret
from helm_chart import pod_specs
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def environment(nats: ChartBroker, kind: str) -> dict[str, str]:
    """The environment of the first container of a pod, with paths of this machine."""
    spec = pod_specs(nats.trees)[kind]
    [container, *_] = spec["containers"]
    found = {each["name"]: each.get("value", "") for each in container["env"]}
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "secrets"]
    password = Path(found["NATS_PASSWORD_FILE"])
    assert str(password.parent) == mount["mountPath"]
    return found | {
        "NATS_URL": f"tls://localhost:{nats.port}",
        "NATS_PASSWORD_FILE": str(mounted(nats, kind, spec) / password.name),
        "NATS_CA_FILE": str(nats.place / "ca.crt"),
        "JOULIE_DATA": str(nats.place / "joulie-data"),
        "DATABASE_URL": f"sqlite:///{nats.place}/joulie-data/joulie.db?ledger={nats.place}/ledger",
        "POD_NAMESPACE": "joulie-system",
    }


def mounted(nats: ChartBroker, kind: str, spec: dict[str, Any]) -> Path:
    """The volume with the secrets of a pod, as the kubelet mounts it: links to files."""
    users = secret(nats.trees, "joulie-nats-users")
    [volume] = [each for each in spec["volumes"] if each["name"] == "secrets"]
    folder = nats.place / "secrets" / kind.replace("/", "-")
    (folder / "..data").mkdir(parents=True, exist_ok=True)
    for source in volume["projected"]["sources"]:
        for item in source["secret"]["items"]:
            (folder / "..data" / item["path"]).write_bytes(users[item["key"]])
            with contextlib.suppress(FileExistsError):
                (folder / item["path"]).symlink_to(f"..data/{item['path']}")
    return folder


@pytest.fixture
async def nats(home: Path, tmp_path: Path) -> AsyncGenerator[ChartBroker, None]:
    async with chart_broker(home, tmp_path) as running:
        yield running


async def joulie(nats: ChartBroker, kind: str, *words: str) -> tuple[int, str]:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "joulie_cli.main", *words],
        env=environment(nats, kind) | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


async def test_the_migration_and_a_reader_work_with_the_environment_of_the_chart(
    nats: ChartBroker,
) -> None:
    code, said = await joulie(nats, "Job/joulie-migrate", "migrate")
    assert code == 0, said
    assert "The streams are at" in said

    _, said = await joulie(nats, "Deployment/joulie-console", "plans", "--limit", "1")
    assert "The log is empty" in said  # broker and database answered

    _, said = await joulie(nats, "Pod/joulie-test", "doctor", "-o", "json")
    tree, _ = json.JSONDecoder().raw_decode(said)  # a line on stderr follows
    levels = {each["check"]: each["level"] for each in tree["findings"]}
    checks = ["broker", "clock of the broker", "database", *(f"stream {each}" for each in Stream)]
    assert {check: levels.get(check) for check in checks} == dict.fromkeys(checks, "ok")


async def test_the_probes_of_the_chart_find_a_healthy_server_and_a_missing_one(
    nats: ChartBroker,
) -> None:
    """The commands of the probes, as the kubelet runs them; the port of a test is another one."""
    [container] = pod_specs(nats.trees)["StatefulSet/joulie-nats"]["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        python, *words = container[probe]["exec"]["command"]
        assert python == "python"

        assert await exited(*words, str(nats.monitoring)) == (0, "")
        code, said = await exited(*words, str(free_port()))
        assert code == 1
        assert "nats-server does not answer" in said


async def exited(*words: str) -> tuple[int, str]:
    command = [sys.executable, *words]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


async def test_a_component_may_not_create_streams(nats: ChartBroker) -> None:
    code, said = await joulie(nats, "Deployment/joulie-console", "migrate")

    assert code == 2, said


async def test_the_certificates_satisfy_a_strict_client(nats: ChartBroker) -> None:
    """Python 3.13 verifies strictly by default."""
    context = ssl.create_default_context(cafile=str(nats.place / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(nats.place / "tls.crt", nats.place / "tls.key")
    name = "joulie-nats-0.joulie-nats.joulie-system.svc"
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = context.wrap_bio(to_client, to_server, server_hostname=name)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue

    assert client_side.version() == "TLSv1.3"


async def test_the_key_of_the_log_can_be_read_by_the_projector(nats: ChartBroker) -> None:
    path = nats.place / "head.key"
    path.write_bytes(secret(nats.trees, "joulie-head-key")["head.key"])

    assert Signer.of(path).key_id
