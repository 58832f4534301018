"""`joulie try --from kubeconfig` against a kube-apiserver, with the rights of its ClusterRole."""

import asyncio
import json
import sys
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from kube_moments import node, pod
from kube_real import DEPLOY, PLACES, TOKENS, Running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
NODES, TEAM = "/api/v1/nodes", "/api/v1/namespaces/team/pods"
USER = "viewer"  # an account without rights of its own


async def tried(server: Running) -> tuple[int, str, str]:
    config = str(server.kubeconfig(USER))
    command = ["try", "--from", "kubeconfig", "--kubeconfig", config, "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


def bound(name: str, on: str) -> dict[str, Any]:
    made = pod(name, on)
    del made["status"]
    for each in made["spec"]["containers"]:
        each["image"] = "none"
    return made


@ONLY_REAL
async def test_a_real_server_refuses_without_the_role_and_answers_with_it(server: Running) -> None:
    await server.put(PLACES["Namespace"], {"metadata": {"name": "team"}})
    for number in range(6):
        await server.put(NODES, node(f"m{number}"))
        await server.put(TEAM, bound(f"p{number}", f"m{number}"))

    refused = await tried(server)
    role = yaml.safe_load((DEPLOY / "rbac-try.yaml").read_text())
    await server.put(f"{RIGHTS}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    binding = {
        "metadata": {"name": "joulie-try"},
        "roleRef": {**reference, "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": reference["apiGroup"], "kind": "User", "name": TOKENS[USER][0]}],
    }
    await server.put(f"{RIGHTS}/clusterrolebindings", binding)
    code, out, errors = await tried(server)

    assert refused[:2] == (2, "")
    assert "This account may not list nodes: nodes is forbidden" in refused[2]
    assert (code, errors) == (0, "")
    found = json.loads(out)["trial"]
    assert found["candidates"] == 10  # with the four of the fixture
    assert set(found["pinned"]["nodes"]) & {f"m{number}" for number in range(6)}
    assert found["knows_budgets"] is found["knows_namespaces"] is True
    assert f"1.{found['minor']}." in server.version
