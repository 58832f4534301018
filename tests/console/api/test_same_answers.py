"""A command that reads the data itself gets the answers that a console gives over HTTP."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus_kit import node_seen
from console_kit import STALENESS_S, ConsoleHarness, broker_settings
from joulie.client import ConsoleClient, answers, queries
from joulie_answers.answers import Answers
from joulie_answers.readers.facts import in_streams
from joulie_answers.readers.history import HistoryReader
from joulie_answers.stored import Judgement, Stored, stored_answers
from joulie_bus.broker.embedded import Embedded
from joulie_bus.streams.roles import Role
from joulie_projections.energy.saved import LedgerState
from joulie_projections.history.history import History
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
OF_THE_ANSWER = {  # differ from call to call
    *("at_ms", "age_ms", "behind_ms", "ledger_behind_ms"),
    *("ledger_behind_s", "commit_age_s", "oldest_s", "now_ms", "age_s"),
    *("lease_s", "behind_s", "unsigned_s"),
    "health",  # of a console: what it sees itself, newer than the database
}
ALL_ENERGY = queries.Energy(
    since=datetime(2020, 1, 1, tzinfo=UTC), until=datetime(2100, 1, 1, tzinfo=UTC), by="node"
)
MANIFEST = """
kind: Deployment
metadata: {name: new}
spec:
  replicas: 200
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}
"""
Source = Answers | ConsoleClient
QUESTIONS: dict[str, Callable[[Source], Awaitable[answers.Answer]]] = {
    "cards": lambda source: source.gpus(queries.Gpus()),
    "a pod": lambda source: source.pod("team/heavy", queries.Pod()),
    "a pod and a candidate": lambda source: source.pod("runs", queries.Pod(candidate="n2")),
    "decisions": lambda source: source.decisions(queries.Decisions()),
    "decisions that considered a node": lambda source: source.decisions(
        queries.Decisions(candidate="n2", namespace="team")
    ),
    "nodes": lambda source: source.nodes(queries.Nodes()),
    "a node": lambda source: source.node("n2", queries.Node()),
    "a node before": lambda source: source.node("n2", queries.Node(at=12)),
    "a plan": lambda source: source.plan("p8", queries.NoParameters()),
    "energy": lambda source: source.energy(ALL_ENERGY),
    "requests": lambda source: source.workload_requests(queries.WorkloadRequests()),
    "plans": lambda source: source.plans(queries.Plans()),
    "the next plan": lambda source: source.next_plan(queries.NextPlan(after_s=600)),
    "what runs": lambda source: source.status(queries.NoParameters()),
    "a manifest": lambda source: source.place(queries.Place(manifest=MANIFEST, namespace="team")),
    "cards with room": lambda source: source.gpus(queries.Gpus(free=True)),
}


@contextlib.asynccontextmanager
async def local(harness: ConsoleHarness) -> AsyncGenerator[Answers, None]:
    place = harness.database
    history = HistoryReader(lambda: History.readable(place))
    stored = Stored(
        lambda: History.readable(place),
        lambda: EnergyTable.readable(place),
        lambda: seconds_behind(place),
        in_streams(harness.bus, history),
    )
    try:
        async with stored_answers(stored, Judgement(time.time_ns(), STALENESS_S)) as found:
            yield found
    finally:
        history.close()


def comparable(answer: answers.Answer) -> dict[str, Any]:
    document: dict[str, Any] = without_times(msgspec.to_builtins(answer))
    return document


def without_times(tree: Any) -> Any:
    match tree:
        case dict():
            kept = ((name, each) for name, each in tree.items() if name not in OF_THE_ANSWER)
            return {name: without_times(each) for name, each in kept}
        case list():
            return [without_times(each) for each in tree]
        case _:
            return tree


@pytest.mark.parametrize("question", QUESTIONS)
async def test_both_sources_give_the_same_document(scenario: ConsoleHarness, question: str) -> None:
    ask = QUESTIONS[question]
    async with ConsoleClient(scenario.url) as console, local(scenario) as stored:
        over_http, from_data = await ask(console), await ask(stored)

    assert comparable(over_http) == comparable(from_data)


COMMANDS = {
    "gpus": "items",
    "explain team/heavy": "attempt",
    "explain node n2": "transitions",
    "explain plan p8": "plan",
    "twin n2": "node",
    "plans": "items",
    "plans --next 10m": "least_dense_first",
    "plans --defragment": "notes",
    "status": "elsewhere",
    "decisions --kind filter --kind prioritize": "items",
}


async def joulie(*words: str, data: Path, **environ: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", *words, "--data", str(data)),
        env={**os.environ, "JOULIE_CLUSTER": "test", **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_asks_a_console_and_prints_one_document(
    scenario: ConsoleHarness, command: str, tmp_path: Path
) -> None:
    """The data directory is empty: nothing but the console answers."""
    words = (*command.split(), "--server", scenario.url)
    document = json.loads(await joulie(*words, "-o", "json", data=tmp_path))
    text = await joulie(*words, data=tmp_path)

    assert document[COMMANDS[command]]
    assert text.strip()


@pytest.mark.long
async def test_a_report_by_a_console_is_the_one_by_the_command(
    scenario: ConsoleHarness, server: Embedded, tmp_path: Path
) -> None:
    """The console of the scenario may read the key. A head can be signed between both."""
    words = ("report", "-o", "json", "--from", "2026-05-04T12:00:00.123", "--to", "2099-01-01")
    by_console = json.loads(await joulie(*words, "--server", scenario.url, data=tmp_path))
    environ, there = broker_settings(server, Role.AUDITOR), scenario.database.parent
    by_command = json.loads(await joulie(*words, data=there, **environ))
    signatures = [each.pop("signature")["key_id"] for each in (by_console, by_command)]

    assert signatures[0] == signatures[1]
    assert by_console | {"head": None} == by_command | {"head": None}
    assert list(by_console) == list(by_command)


@pytest.mark.long
async def test_a_report_without_the_key_is_said_to_be_unsigned(
    new_harness: NewHarness, hour_of_energy: LedgerState, tmp_path: Path
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"))
        harness.fill_ledger(hour_of_energy)
        key = harness.database.parent / "head.key"
        key.rename(tmp_path / "elsewhere")
        async with ConsoleClient(harness.url) as console:
            found = await console.report()

    assert not found.signed
    assert "signature" not in found.report
    assert found.report["energy"]["node"]["meter_kwh"] > 0
