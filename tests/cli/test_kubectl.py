import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from joulie_cli.ask.explain import question_of
from joulie_cli.asking import questions
from joulie_cli.kubectl.__main__ import EXAMPLES, parsed
from kube_api import ApiServer
from kube_builders import joulie_server

pytestmark = pytest.mark.anyio
PATIENCE_S = 120


def twin(
    name: str, state: str, *, headroom: float, watts: float | None = None, why: str = ""
) -> dict[str, Any]:
    """`why` is the reason of the condition for which it takes no pods."""
    power: dict[str, Any] = {"nodeCappedPowerW": 600.0, "nodeTdpW": 1000.0}
    if watts is not None:
        power |= {"source": "kepler", "measuredNodePowerW": watts}
    profile = "eco" if state == "eco" else "performance"
    caps = {"packagePowerCapPctOfMax": 60 if state == "eco" else 100}
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": name,
            "profile": profile,
            "cpu": caps,
        },
        "status": {
            "schedulableClass": state,
            "predictedPowerHeadroomScore": headroom,
            "predictedCoolingStressScore": 12.5,
            "performancePods": 2,
            "powerMeasurement": power,
            "conditions": [{"type": "Schedulable", "status": "False", "reason": why}] * bool(why),
        },
    }


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer, None]:
    made = joulie_server()
    made.put("nodetwins", twin("n1", "eco", headroom=50, watts=300))
    made.put("nodetwins", twin("n2", "performance", headroom=80, watts=500))
    made.put("nodetwins", {"metadata": {"name": "n3"}, "spec": {"nodeName": "n3"}})
    async with made.listening():
        yield made


async def kubectl(server: ApiServer, tmp: Path, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "joulie_cli.kubectl", "status", *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--kubeconfig",
        str(server.kubeconfig(tmp)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_overview_of_a_cluster(server: ApiServer, tmp_path: Path) -> None:
    code, out, _ = await kubectl(server, tmp_path)

    assert code == 0
    assert out.splitlines() == [
        "Nodes     3: performance 1  eco 1  draining 0  unknown 1; 2 awake",
        "Power     0.8 kW on 2 nodes measured; caps allow 1.2 kW of 2.0 kW",
        "Headroom  65 on average; cooling stress at most 12.5",
        "Demand    4 performance pods running",
        "",
        "NODE  PROFILE      CLASS        STATE  HEADROOM  COOLING  CPU-CAP  GPU-CAP  WATTS  "
        "PERF-PODS",
        "n1    eco          eco          awake  50        12.5     60       -        300    2",
        "n2    performance  performance  awake  80        12.5     100      -        500    2",
        "n3    -            unknown      -      -         -        -        -        -      -",
    ]


async def test_a_node_that_is_lost_or_drained_is_not_awake(
    server: ApiServer, tmp_path: Path
) -> None:
    server.put("nodetwins", twin("n1", "performance", headroom=80, why="NotReady"))
    server.put("nodetwins", twin("n2", "performance", headroom=80, why="Cordoned"))
    _, out, _ = await kubectl(server, tmp_path)

    assert out.splitlines()[0].endswith("; 1 not ready, 1 cordoned")
    assert [" ".join(line.split()[1:5]) for line in out.splitlines()[6:8]] == [
        "performance performance not ready",
        "performance performance cordoned 80",
    ]


async def test_what_no_node_twin_holds_is_not_a_zero(tmp_path: Path) -> None:
    made = joulie_server()
    made.put("nodetwins", {"metadata": {"name": "n3"}, "spec": {"nodeName": "n3"}})
    async with made.listening():
        _, out, _ = await kubectl(made, tmp_path)

    assert out.splitlines()[:4] == [
        "Nodes     1: performance 0  eco 0  draining 0  unknown 1",
        "Power     - on 0 nodes measured; caps allow - of -",
        "Headroom  - on average; cooling stress at most -",
        "Demand    - performance pods running",
    ]


async def test_rows_are_sorted_by_any_column_with_unknown_values_last(
    server: ApiServer, tmp_path: Path
) -> None:
    _, out, _ = await kubectl(server, tmp_path, "--sort-by", "headroom", "-o", "wide")

    assert [line.split()[0] for line in out.splitlines()[6:]] == ["n2", "n1", "n3"]
    assert "TDP" in out.splitlines()[5]


async def test_the_wide_form_has_watts_feeds_and_sources(server: ApiServer, tmp_path: Path) -> None:
    wide = twin("n1", "eco", headroom=50, watts=300)
    wide["spec"]["cpu"]["packagePowerCapWatts"] = 180
    wide["spec"]["gpu"] = {"powerCap": {"capPctOfMax": 60, "capWattsPerGpu": 210.5}}
    wide["status"] |= {"predictedPsuStressScore": 30, "estimatedPUE": 1.25}
    wide["status"]["powerMeasurement"]["measuredAt"] = "2026-01-01T00:00:00Z"
    server.put("nodetwins", wide)
    _, out, _ = await kubectl(server, tmp_path, "-o", "wide")

    cells = dict(zip(out.splitlines()[5].split(), out.splitlines()[6].split(), strict=False))
    told = ("CPU-CAP-W", "GPU-CAP-W", "PSU", "PUE", "SOURCE", "MEASURED")
    assert [cells[name] for name in told] == [
        "180",
        "210.5",
        "30",
        "1.25",
        "kepler",
        "2026-01-01T00:00:00Z",
    ]


async def test_estimates_of_a_model_do_not_count_as_measured(
    server: ApiServer, tmp_path: Path
) -> None:
    modelled = twin("n2", "performance", headroom=80, watts=500)
    modelled["status"]["powerMeasurement"]["source"] = "utilization"
    server.put("nodetwins", modelled)
    _, out, _ = await kubectl(server, tmp_path)

    assert "0.3 kW on 1 nodes measured" in out


async def test_machines_read_json(server: ApiServer, tmp_path: Path) -> None:
    _, out, _ = await kubectl(server, tmp_path, "-o", "json")

    told = json.loads(out)
    assert told["summary"]["classes"] == {"performance": 1, "eco": 1, "draining": 0, "unknown": 1}
    assert [node["watts"] for node in told["nodes"]] == [300, 500, None]


async def test_watching_shows_what_changes(server: ApiServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "joulie_cli.kubectl", "status", "-w", "-o", "json"]
    kubeconfig = str(server.kubeconfig(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig", kubeconfig, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            first = json.loads(await process.stdout.readline())
            server.put("nodetwins", twin("n3", "draining", headroom=10))
            second = json.loads(await process.stdout.readline())
    finally:
        process.kill()
        await process.communicate()

    counts = [told["summary"]["classes"]["draining"] for told in (first, second)]
    assert counts == [0, 1]


@pytest.mark.parametrize("words", [("decisions", "--since"), ("report", "--from")])
def test_a_time_may_be_relative_to_now(words: tuple[str, str]) -> None:
    args = parsed([*words, "-10m"])

    assert "-10m" in vars(args).values()


async def test_a_cluster_without_joulie_is_reported(tmp_path: Path) -> None:
    async with ApiServer().listening() as server:
        code, _, err = await kubectl(server, tmp_path)

    assert code == 2
    assert "Is Joulie installed? See deploy/crds." in err


@pytest.mark.slow
async def test_an_unreachable_cluster_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    code, _, err = await kubectl(ApiServer(), tmp_path)

    assert code == 2
    assert err.startswith("kubectl joulie: Cannot connect to host 127.0.0.1")


def test_a_node_and_a_plan_are_explained_as_by_joulie() -> None:
    assert question_of(parsed(["explain", "node", "n1"])) is questions.node_changes
    assert question_of(parsed(["explain", "plan", "p1"])) is questions.plan
    assert question_of(parsed(["explain", "train-0", "-n", "team-a"])) is questions.pod


def test_every_help_has_examples_that_the_command_accepts() -> None:
    for name, lines in EXAMPLES.items():
        assert lines
        for line in lines:
            assert parsed(line.split()[2:]).command == name


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["gpus", "--fre"], "kubectl joulie gpus: there is no option --fre. Similar: --free."),
        (["gpsu"], "did you mean gpus?"),
        (["report", "--json"], "Similar: -o json."),
    ],
)
def test_a_wrong_option_is_one_line_with_a_similar_one(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(words)

    [line] = capsys.readouterr().err.splitlines()
    assert (end.value.code, named in line) == (2, True), line
