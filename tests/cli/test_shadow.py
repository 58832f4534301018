"""`joulie up --shadow` beside another scheduler: it answers for every pod and writes nothing."""

import asyncio
import contextlib
import html
import json
import os
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bus_kit import until
from http_server import serving
from joulie_answers.report.page import page_of
from joulie_bus.events import FilterDecided, OutcomeSeen, PrioritizeDecided
from joulie_demo import told_by
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.store.energy_table import EnergyTable
from kube_api import ApiServer
from kube_builders import granted, pod, server_of_four
from kube_devices import serve_kinds

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PATIENCE_S = 120.0


@pytest.fixture
async def server() -> AsyncGenerator[ApiServer, None]:
    made = server_of_four("shadow", granted("rbac-shadow.yaml"))
    serve_kinds(made)
    async with made.listening():
        yield made


@pytest.fixture
async def meter() -> AsyncGenerator[str, None]:
    """A URL with the power of each node."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"nodePowerWatts": 300})

    async with serving(answer) as url:
        yield f"{url}/{{node}}"


def place(server: ApiServer, name: str, on: str) -> None:
    """As another scheduler does."""
    server.put("pods", pod(name), "team")
    server.put("pods", pod(name, node=on), "team")


def decided(data: Path, kind: str) -> dict[str, str]:
    """The names of pods with such an entry, and the ids of the entries."""
    with contextlib.suppress(Exception), History.of(DataDirectory(data).database) as history:
        entries = history.find(EntryQuery(kinds=(kind,)))
        return {entry.pod.rpartition("/")[2]: entry.event_id for entry in entries}
    return {}


def in_the_ledger(data: Path) -> int:
    """The time up to which a report is computed: that of the newest reading."""
    with EnergyTable.readable(DataDirectory(data).database) as table:
        held = table.load()
    return held.ledger.newest_ms if held is not None else 0


async def so(condition: Any) -> None:
    await until(condition, PATIENCE_S)


def kill(data: Path, part: str) -> None:
    running = DataDirectory(data).running()
    assert running is not None
    os.kill(running.parts[part], signal.SIGKILL)


@pytest.mark.long
async def test_every_pod_that_another_scheduler_places_is_answered_and_nothing_is_written(
    server: ApiServer, meter: str, tmp_path: Path
) -> None:
    data, report = tmp_path / "data", tmp_path / "report.json"
    kubeconfig = server.kubeconfig(tmp_path, "shadow")
    server.initial_events = "refused"  # lists, too, have to be allowed
    options = ("--shadow", "--report", str(report))
    settings = {"NODE_POWER_ADDRESS": meter, "NODE_POWER_INTERVAL": "500ms", "PRESET": "savings"}
    async with joulie("up", kubeconfig, data, PATIENCE_S, *options, **settings) as process:
        for number in range(6):
            place(server, f"early{number}", f"n{number % 2}")
        await so(lambda: len(decided(data, PrioritizeDecided.TYPE)) == 6)
        await so(lambda: len(decided(data, OutcomeSeen.TYPE)) > 0)
        kill(data, "shadow")
        kill(data, "operator")
        for number in range(6):  # while both are away
            place(server, f"late{number}", "n3")
        await so(lambda: len(decided(data, PrioritizeDecided.TYPE)) == 12)
        await so(lambda: len(decided(data, OutcomeSeen.TYPE)) == 12)  # the operator is back
        bound_ms = time.time_ns() // 1_000_000
        await so(lambda: in_the_ledger(data) > bound_ms)
    assert process.returncode == 0
    assert server.writes() == []
    assert server.used == granted("rbac-shadow.yaml")
    await check_log(data, report)


async def check_log(data: Path, report: Path) -> None:
    """Every pod has an answer of the shadow, in a log and a report that can be computed again."""
    answers = decided(data, FilterDecided.TYPE)
    assert {event_id.partition(":")[0] for event_id in answers.values()} == {"shadow"}
    told = json.loads(report.read_text())
    assert (told["placements"]["bound"], told["placements"]["answered"]) == (12, 12)
    assert told["energy"]["node"]["meter_kwh"] > 0
    found = told["counterfactual"]
    assert found["saved"]["kwh"]["mid"] is not None
    assert (found["policy"], found["as_it_ran"], found["sleep"]) == ("joulie-energy", False, True)
    assert "PRESET=savings (POLICY_TYPE=consolidate_and_sleep)" in found["assumed"][0]
    assert told["saved"] is None  # of what the meters measured, which was another scheduler's
    page = page_of(told)
    assert "without any plan of Joulie" in page
    assert all(html.escape(line) in page for line in found["assumed"])
    code, verdict = await asyncio.to_thread(told_by, "verify", "--report", report, "--data", data)
    assert (code, verdict["flaw"]) == (0, None)
    replayed, _ = await asyncio.to_thread(told_by, "replay", "--data", data)
    assert replayed == 0
