"""The objects of the chart and real API servers of each supported version that is built."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest

from helm_chart import CHART, DOCUMENTED, NAMESPACE, helm, rendered
from joulie_answers.doctor.judgement.versions import numbers
from joulie_bus.errors import KubernetesRefused
from joulie_operator.kube.api_client import JSON
from kube_real import PLACES, ProgramMissing, Running, older_server, real_server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
STRICTLY = {"dryRun": "All", "fieldValidation": "Strict"}
_ISSUED, _WATCHED = ("cert-manager.io", "v1"), ("monitoring.coreos.com", "v1")
FOREIGN_KINDS = [
    ("Certificate", *_ISSUED, "certificates"),
    ("Issuer", *_ISSUED, "issuers"),
    ("ServiceMonitor", *_WATCHED, "servicemonitors"),
    ("PrometheusRule", *_WATCHED, "prometheusrules"),
]
FOREIGN = {kind for kind, *_ in FOREIGN_KINDS}
DEFINITIONS = PLACES["CustomResourceDefinition"]
NEWEST = "newest"  # of `make kube`; the others are of `make apiservers`


class Versioned(NamedTuple):
    """A bare API server with the namespace of the chart."""

    server: Running
    version: str

    @property
    def admissions(self) -> list[str]:
        return ["webhook", *(["policy"] if self.server.differences.policies else [])]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["1.32", "1.33", NEWEST])
async def versioned(
    request: pytest.FixtureRequest, assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Versioned, None]:
    try:
        apiserver = None if request.param == NEWEST else older_server(request.param)
    except ProgramMissing as missing:
        pytest.skip(f"requires an older kube-apiserver: {missing}")
    place = tmp_path_factory.mktemp("versioned") / "server"
    async with real_server(place, assets, bare=True, apiserver=apiserver) as server:
        version = json.loads(await server.api.get("/version") or b"{}")["gitVersion"]
        assert request.param in (NEWEST, ".".join(map(str, numbers(version))))
        await server.put(PLACES["Namespace"], {"metadata": {"name": NAMESPACE}})
        yield Versioned(server, version)


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_the_server_accepts_every_object_of_the_chart(
    name: str, versioned: Versioned, home: Path
) -> None:
    for how in versioned.admissions:
        options = ["-f", str(CHART / f"{name}.yaml"), "--set", f"scheduler.admission={how}"]
        trees = [
            tree
            for tree in rendered(home, *options, version=versioned.version)
            if tree["kind"] not in FOREIGN
        ]

        for tree in trees:
            namespace = tree["metadata"].get("namespace", NAMESPACE)
            path = versioned.server.place(tree["kind"], namespace)
            await versioned.server.api._send("POST", path, STRICTLY, tree, JSON)

        assert len(trees) > 35


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_helm_installs_and_uninstalls_with_what_the_server_offers(
    name: str, offering: Versioned, home: Path
) -> None:
    """No controller runs, so hooks are left out."""
    admin = offering.server.kubeconfig("admin")
    words = ["joulie", "-n", NAMESPACE, "--no-hooks"]
    values = ["-f", str(CHART / f"{name}.yaml")]
    for command in (["install", *words, *values, str(CHART)], ["uninstall", *words]):
        code, said = await asyncio.to_thread(helm, command, home, admin)
        assert code == 0, said


@pytest.fixture(scope="module")
async def offering(versioned: Versioned) -> Versioned:
    """With the kinds of other projects that the chart uses, of any content."""
    server = versioned.server
    await server.put(DEFINITIONS, *(definition(*each) for each in FOREIGN_KINDS))

    async def is_served(group: str, version: str, plural: str) -> bool:
        try:
            await server.api.get(f"/apis/{group}/{version}/{plural}")
        except KubernetesRefused:
            return False
        return True

    async with asyncio.timeout(60):
        for _, group, version, plural in FOREIGN_KINDS:
            while not await is_served(group, version, plural):
                await asyncio.sleep(0.1)
    return versioned


def definition(kind: str, group: str, version: str, plural: str) -> dict[str, object]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
