"""`joulie place` over a recorded log, as its users run it, and through an API server."""

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from foretelling import Case, a_pod, require_right
from http_server import serving
from joulie.client import answers, queries
from joulie.client.console import ConsoleClient
from joulie.client.proxy import Place, ProxyConnection
from joulie_answers.place.manifest import read
from joulie_answers.place.placing import Moment
from joulie_bus.errors import ConsoleRefused
from joulie_cli.kubectl.__main__ import main as kubectl
from joulie_cli.main import main
from joulie_extender.catalogue.weights import Weights
from joulie_operator.kube.api_client import ApiServer
from joulie_projections.history.history import History
from joulie_projections.twin.columns import TwinColumns
from random_clusters import Dice

pytestmark = pytest.mark.anyio
Golden = Any  # of conftest.py
POD = "kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c}]}\n"
LARGE = POD.replace("name: c", "name: c, resources: {requests: {cpu: 5000}}")
UNSURE = POD.replace("spec: {", "spec: {schedulerName: other, ")


def place(
    golden: Golden, tmp: Path, manifest: str, *words: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    file = tmp / "manifest.yaml"
    file.write_text(manifest)
    code = main(["place", "-f", str(file), "--data", str(golden.data), *words])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    ("manifest", "words", "code"),
    [
        (POD, (), 0),
        (POD, ("--fail-if-pending",), 0),
        (LARGE, (), 0),
        (LARGE, ("--fail-if-pending",), 1),
        (UNSURE, (), 0),
        (UNSURE, ("--fail-if-pending",), 3),
        (f"{UNSURE}---\n{LARGE}", ("--fail-if-pending",), 1),
        ("kind: Service", ("--fail-if-pending",), 2),
    ],
)
def test_the_exit_code_says_whether_a_pod_would_wait(
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    manifest: str,
    words: tuple[str, ...],
    code: int,
) -> None:
    found, out, err = place(golden, tmp_path, manifest, *words, capsys=capsys)

    assert found == code, out + err
    assert bool(out) == (code != 2)


def test_the_answer_is_sentences_or_the_document_of_the_api(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = place(golden, tmp_path, POD, "-n", "team-a", capsys=capsys)
    _, document, _ = place(golden, tmp_path, POD, "-n", "team-a", "-o", "json", capsys=capsys)
    told: dict[str, Any] = json.loads(document)

    assert text.startswith("Pod team-a/new: would be placed now\n")
    assert "scores     of the first pod" in text
    assert told["groups"][0]["nodes"][0]["node"] in text
    assert (told["pods"], told["placed"]) == (1, 1)


def test_not_a_byte_of_the_data_changes(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sums(golden.data)
    assert place(golden, tmp_path, POD, capsys=capsys)[0] == 0

    assert sums(golden.data) == before
    assert before


def sums(data: Path) -> dict[str, str]:
    """Without the memory that readers of SQLite share, which a restart discards."""
    files = (path for path in sorted(data.rglob("*")) if path.is_file())
    kept = (path for path in files if not path.name.endswith("-shm"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


@pytest.mark.parametrize("number", range(40))
def test_on_a_recorded_log_the_extender_decides_as_foretold(golden: Golden, number: int) -> None:
    with History.readable(golden.data / "joulie.db") as history:
        state = history.cluster_state()
        position = history.checkpoint().position  # type: ignore[union-attr]
        at = history.committed_at(position) or 0
    manifest = a_pod(Dice(number))
    [pods] = read(json.dumps(manifest)).pods
    moment = Moment(state, TwinColumns.of_state(state), position, at, Weights(scoring="energy"))
    require_right(Case(moment, pods, manifest))


@pytest.mark.parametrize(
    ("file", "why"),
    [("nowhere.yaml", "No such file"), (".", "Is a directory"), ("bytes", "not text in UTF-8")],
)
def test_a_file_that_cannot_be_read_is_one_error(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, why: str
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    code = main(["place", "-f", str(tmp_path / file), "--data", str(golden.data)])
    [line] = capsys.readouterr().err.splitlines()

    assert code == 2
    assert why in line
    assert line.endswith("Name another file.")


# --- through an API server --------------------------------------------------------------------

SECRET = base64.b64encode(b"a token of sixteen or more").decode()


class Behind:
    """A console behind the API server's proxy."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self._status, self._document = status, document
        self.asked = list[tuple[str, str, str, str]]()

    async def answer(self, request: web.Request) -> web.Response:
        if "/secrets/" in request.path:
            return web.json_response({"data": {"token": SECRET}})
        token, kind = request.headers["Joulie-Token"], request.headers["Content-Type"]
        self.asked.append((request.method, kind, token, await request.text()))
        return web.json_response(self._document, status=self._status)


@contextlib.asynccontextmanager
async def kubeconfig(behind: Behind, tmp: Path) -> AsyncGenerator[Path, None]:
    async with serving(behind.answer) as url:
        config = {
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp / "kubeconfig"
        file.write_text(json.dumps(config))
        yield file


async def test_the_plugin_of_kubectl_posts_the_manifest_with_the_token(tmp_path: Path) -> None:
    problem = {"type": "about:blank", "title": "x", "status": 400, "detail": "no such thing."}
    behind = Behind(400, problem)
    async with kubeconfig(behind, tmp_path) as file, ApiServer.of(file) as api:
        console = ConsoleClient.over(await ProxyConnection.of(api, Place()))
        with pytest.raises(ConsoleRefused):
            await console.place(queries.Place(manifest=POD))

    assert behind.asked == [("POST", "application/yaml", "a token of sixteen or more", POD)]


@pytest.mark.parametrize(("placed", "code"), [(1, 0), (0, 1)])
async def test_the_plugin_of_kubectl_exits_as_joulie_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], placed: int, code: int
) -> None:
    behind = Behind(200, msgspec.to_builtins(foretold(placed)))
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    async with kubeconfig(behind, tmp_path) as config:
        words = ["place", "-f", str(file), "--fail-if-pending", "--kubeconfig", str(config)]
        found = await asyncio.to_thread(kubectl, words)

    assert found == code
    assert "kube-scheduler 1.37" in capsys.readouterr().out


def foretold(placed: int) -> answers.Foretold:
    room = answers.Room(cores=1, gpus=0)
    return answers.Foretold(
        position=7,
        at_ms=1,
        age_ms=0,
        behind_ms=0,
        pods=1,
        placed=placed,
        groups=[],
        ignored=[],
        settings="",
        minor=37,
        waiting=0,
        waked=None,
        free_before=room,
        free_after=room,
        added_w=None,
        kwh_per_hour=None,
        unknown=[],
    )
