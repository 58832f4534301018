"""`joulie try --from kubeconfig`, as its users run it, against an API server."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_api import ApiServer
from kube_builders import granted, joulie_server
from kube_moments import node, pod

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
READER = "reader"


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer, None]:
    made = joulie_server()
    made.users[READER] = (READER, granted("rbac-try.yaml"))
    for number in range(6):
        made.put("nodes", node(f"n{number}"))
        made.put("pods", pod(f"p{number}", f"n{number}"), "team")
    async with made.listening():
        yield made


async def tried(config: Path, *options: str) -> tuple[int, str, str]:
    command = ["try", "--from", "kubeconfig", "--kubeconfig", str(config), *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_the_rights_in_the_file_suffice_and_nothing_is_written(
    server: ApiServer, tmp_path: Path
) -> None:
    code, out, errors = await tried(server.kubeconfig(tmp_path, READER))

    assert (code, errors) == (0, "")
    assert out.startswith("4 of 6 nodes could sleep now: ")
    assert {verb for _, _, verb in server.used} == {"list"}
    assert server.used == granted("rbac-try.yaml")


async def test_the_answer_in_json_has_the_nodes_the_reasons_and_the_sentences(
    server: ApiServer, tmp_path: Path
) -> None:
    _, out, _ = await tried(server.kubeconfig(tmp_path, READER), "-o", "json")

    found = json.loads(out)
    assert len(found["trial"]["pinned"]["nodes"]) == 4
    assert found["trial"]["pinned"]["watts_low"] < found["trial"]["pinned"]["watts_high"]
    assert any("No watts are measured" in each for each in found["assumed"])
    assert any("this is one moment" in each for each in found["not_known"])


@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_without_the_right_to_list_nodes_or_pods_there_is_one_clear_error(
    server: ApiServer, tmp_path: Path, resource: str
) -> None:
    server.users[READER] = (READER, granted("rbac-try.yaml") - {("", resource, "list")})

    code, out, errors = await tried(server.kubeconfig(tmp_path, READER))

    assert (code, out) == (2, "")
    [line] = errors.splitlines()
    assert line.startswith(f"joulie try: This account may not list {resource}: ")
    assert "Nothing was computed." in line
    assert "deploy/rbac-try.yaml" in line


async def test_without_the_other_rights_it_answers_and_says_what_it_took_for_them(
    server: ApiServer, tmp_path: Path
) -> None:
    server.users[READER] = (READER, {("", "nodes", "list"), ("", "pods", "list")})

    code, out, _ = await tried(server.kubeconfig(tmp_path, READER))

    assert code == 0
    assert "PodDisruptionBudgets could not be listed" in out
    assert "Namespaces could not be listed" in out


async def test_a_server_that_is_not_there_and_a_context_that_is_not_there_are_one_error(
    server: ApiServer, tmp_path: Path
) -> None:
    config = server.kubeconfig(tmp_path)
    _, _, unknown = await tried(config, "--context", "nowhere")
    config.write_text(config.read_text().replace(f":{server.port}", ":1"))
    code, out, errors = await tried(config)

    assert (code, out) == (2, "")
    assert len(errors.splitlines()) == len(unknown.splitlines()) == 1
    assert "The API server cannot be reached" in errors
    assert "nowhere" in unknown
