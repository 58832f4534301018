"""The Job that verifies a day of the archive in each pod: its very commands, and their sum."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from audit_kit import RecordedLog, small_log_in, written_archive
from bus_kit import ask, power
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS, BucketCopy
from joulie_audit.archive.parts import Archive, day_of
from kube_real import ASSETS, Running, program_or_skip, real_server
from s3_server import S3Server, serving_s3

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]
MANIFEST = Path(__file__).parents[2] / "deploy" / "audit-job.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
DAYS = 3


def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    return found


class Result(NamedTuple):
    code: int
    out: str


class Pods:
    """Runs the containers of the Job, with their paths below a directory and the settings of the
    server."""

    def __init__(self, first_day: str, place: Path, environ: dict[str, str], key: Path) -> None:
        self._first_day = first_day
        self._place = place
        self._environ = environ
        self._key = key

    def run(self, index: int) -> Result:
        spec = job()["spec"]["template"]["spec"]
        [fetch], [verify] = spec["initContainers"], spec["containers"]
        fetched = self._command(fetch, index)
        return fetched if fetched.code else self._command(verify, index)

    def _command(self, container: dict[str, Any], index: int) -> Result:
        given = {each["name"]: each.get("value", str(index)) for each in container["env"]}
        given |= {"FIRST_DAY": self._first_day, **self._environ}
        words = [
            re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], word)
            .replace("/etc/joulie/key/head.pub", str(self._key))
            .replace("/archive/", f"{self._place}/{index}/")
            for word in container["args"]
        ]
        (self._place / str(index)).mkdir(exist_ok=True)
        return joulie(words, given)


def joulie(words: Sequence[str], given: dict[str, str], stdin: str = "") -> Result:
    environ = os.environ | given | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "joulie_cli.main", *words]
    done = subprocess.run(
        command, env=environ, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return Result(done.returncode, done.stdout)


def run_with_joulie(program: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    words, environ = [sys.executable, str(program)], os.environ | {"PATH": path}
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3Server]:
    with serving_s3(tmp_path_factory.mktemp("s3")) as serving:
        yield serving


@pytest.fixture
async def small_log(database_file: Path, tmp_path: Path) -> AsyncGenerator[RecordedLog]:
    async with small_log_in(database_file, tmp_path) as made:
        yield made


@pytest.fixture
async def archive(small_log: RecordedLog, tmp_path: Path) -> Path:
    """Of some days."""
    for day in range(DAYS):
        await small_log.builder.facts(power("n1", 99 + day), after_s=86_400)
        await small_log.builder.answer(ask(f"p{day}"))
        small_log.builder.sign()
    place = tmp_path / "whole"
    await written_archive(small_log, place)
    small_log.builder.signer.publish(place / PUBLIC_KEYS)
    return place


@pytest.fixture
def days(archive: Path) -> list[str]:
    return sorted({day_of(place) for place, _ in Archive.of(archive).facts})


@pytest.fixture
def pods(
    archive: Path, days: list[str], s3: S3Server, tmp_path: Path, request: pytest.FixtureRequest
) -> Pods:
    prefix = request.node.name.replace("_", "-")
    BucketCopy(s3.bucket(prefix), archive).put()
    place = tmp_path / "pods"
    place.mkdir()
    environ = s3.environ(tmp_path) | {"ARCHIVE_BUCKET": f"{s3.url}/{prefix}"}
    return Pods(days[0], place, environ, archive / PUBLIC_KEYS)


@pytest.mark.long
async def test_each_index_verifies_its_day_and_the_sum_joins_them(
    pods: Pods, days: list[str], archive: Path
) -> None:
    results = [pods.run(index) for index in range(len(days))]

    summed = joulie(
        ["verify", "--sum", "-", "-o", "json"], {}, "".join(each.out for each in results)
    )

    found = json.loads(summed.out)["sum"]
    whole = Archive.of(archive)
    assert [each.code for each in (*results, summed)] == [0] * (len(days) + 1)
    assert len(days) > DAYS
    assert (found["first_day"], found["last_day"]) == (days[0], days[-1])
    assert found["positions"] == [1, whole.facts[-1][1].last]
    assert found["entries"] == [1, whole.log[-1][1].last]
    assert found["signed_to"] == found["entries"][1]
    assert found["flaw"] is None


async def test_a_pod_fetches_the_files_of_its_day_only(
    pods: Pods, days: list[str], tmp_path: Path
) -> None:
    pods.run(1)

    held = {
        day_of(file.parent)
        for file in (tmp_path / "pods" / "1" / "day").glob("*/*/*/[0-9]*/*")
        if file.name != "manifest.json"
    }

    assert held == {days[1]}


@pytest.mark.long
async def test_a_changed_file_fails_its_index_and_the_sum(
    pods: Pods, archive: Path, days: list[str]
) -> None:
    good = [pods.run(index) for index in range(len(days))]
    place = pods._place / "1" / "day"
    file = next(place.glob(f"facts/{days[1]}/*/*/readings.*"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")

    bad = pods.run(1)
    summed = joulie(["verify", "--sum", "-"], {}, good[0].out + bad.out + good[2].out)

    assert (bad.code, summed.code) == (1, 1)
    assert "its SHA-256 does not match" in summed.out


@pytest.mark.long
async def test_the_sum_misses_a_day(pods: Pods, days: list[str]) -> None:
    first, _, last = (pods.run(index).out for index in range(3))

    summed = joulie(["verify", "--sum", "-"], {}, first + last)

    assert summed.code == 1
    assert f"{days[1]} is missing" in summed.out


@pytest.mark.long
async def test_a_day_that_does_not_continue_the_day_before_is_a_flaw_of_the_sum(
    pods: Pods,
) -> None:
    first, second = (json.loads(pods.run(index).out) for index in range(2))

    for of in ("facts", "log"):
        changed = json.loads(json.dumps(second))
        changed["archive"]["day"][of]["before"] = "00" * 32
        summed = joulie(["verify", "--sum", "-"], {}, json.dumps(first) + json.dumps(changed))
        assert summed.code == 1
        assert "do not continue those of the day before" in summed.out

    changed = json.loads(json.dumps(second))
    changed["archive"]["day"]["begins"]["JOULIE_TEL"] += 1
    summed = joulie(["verify", "--sum", "-"], {}, json.dumps(first) + json.dumps(changed))
    assert "messages of JOULIE_TEL before" in summed.out


async def test_a_full_fetch_fills_a_directory_of_one_day(
    pods: Pods, archive: Path, s3: S3Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pods.run(1)
    place = tmp_path / "pods" / "1" / "day"

    BucketCopy(s3.bucket(request.node.name.replace("_", "-")), place).fetch()

    def content(at: Path) -> dict[str, bytes]:
        return {str(each.relative_to(at)): each.read_bytes() for each in at.rglob("*.*g*")}

    assert content(place) == content(archive)


# --- the manifest -----------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Running]:
    assets = program_or_skip(ASSETS, "etcd", "kube-apiserver").parent
    async with real_server(tmp_path / "server", assets, bare=True) as running:
        yield running


async def test_a_kube_apiserver_takes_the_manifest(server: Running) -> None:
    """With server-side apply, a field that it does not know is an error."""
    tree = job()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joulie-system"}}
    await server.api.apply("/api/v1/namespaces/joulie-system", namespace)

    answer = await server.api.apply(
        "/apis/batch/v1/namespaces/joulie-system/jobs/joulie-audit", tree
    )

    assert json.loads(answer)["spec"]["completionMode"] == "Indexed"


@pytest.mark.long
async def test_the_program_of_the_page_verifies_each_day_and_the_sum(
    archive: Path, days: list[str], tmp_path: Path
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    paths = f'ARCHIVE, KEY = "{archive}", "{archive / PUBLIC_KEYS}"'
    file = tmp_path / "program.py"
    file.write_text(program.replace('ARCHIVE, KEY = "/archive", "head.pub"', paths))

    done = run_with_joulie(file)

    assert done.returncode == 0, done.stderr
    assert days[0] in done.stdout
    assert days[-1] in done.stdout
