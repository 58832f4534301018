"""A demo continues despite a hostile agent and HTTP clients, and folds none of their claims."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest

from bus_kit import power
from hostile import Attacker, HostileAgent, HostileClient, attacking
from joulie_audit.archive.fact_source import StreamFacts
from joulie_bus.broker.embedded import Embedded, address_within
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.records import Record
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects, agent_name
from joulie_demo import Running, demo, told_by
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.fold.sequence import fold
from joulie_projections.history.history import History
from joulie_projections.state.rows import STATES, encode, tables_of
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

LOCAL = Subjects("local")
HOSTILE_NODE = "hostile-node"
VERBS = ["/filter", "/prioritize", "/preempt", "/bind", "/gpu/bind", "/debug/scoring", "/explain/x"]
PAGES = ["/", "/v1/decisions", "/v1/nodes", "/v1/stream", "/healthz"]
GROWTH_MIB = 80  # of one process in the second half; a demo keeps storing decisions
# A producer's row counts messages; the cluster's row counts the rows of nodes, the hostile one too.
BELIEFS = [table for table in STATES if table not in ("producer", "cluster")]


class Seen(NamedTuple):
    resident_mib: dict[str, float]
    restarts: dict[str, int]


def seen(data: DataDirectory) -> Seen:
    running = data.running()
    assert running is not None
    return Seen(
        {name: resident_mib(pid) for name, pid in running.parts.items()}, dict(running.restarts)
    )


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def last_lines(data: DataDirectory) -> dict[str, list[str]]:
    return {log.name: log.read_text().splitlines()[-3:] for log in data.logs.glob("*.log")}


@contextlib.asynccontextmanager
async def attacked(running: Running) -> AsyncGenerator[list[Attacker], None]:
    found = running.data.running()
    assert found is not None
    nodes = [name for name in nodes_of(running.data) if name != HOSTILE_NODE]
    address = address_within(running.data.path, found.nats_url, Role.AGENT)
    connection = await Connection.open(address, "hostile")
    attackers: list[Attacker] = [
        HostileAgent(connection, LOCAL, HOSTILE_NODE, nodes, seed=1),
        HostileClient(found.endpoints["extender"].removeprefix("http://"), VERBS, seed=2),
        HostileClient(found.endpoints["console"].removeprefix("http://"), PAGES, seed=3),
    ]
    try:
        async with attacking(attackers):
            yield attackers
    finally:
        await connection.close()


def nodes_of(data: DataDirectory) -> list[str]:
    with History.of(data.database) as history:
        return sorted(history.cluster_state().nodes)


async def beliefs_without(data: DataDirectory, subject: str) -> ClusterState:
    """The fold of all facts except those of one subject."""
    cluster_state, position = ClusterState(), 0
    broker = Embedded(data.path)
    await broker.start()
    try:
        async with JetStreamLog.open(broker.address_of(Role.AUDITOR), "test") as bus:
            with History.of(data.database) as history:
                async with StreamFacts.on(bus, history) as facts:
                    for manifest in history.manifests():
                        honest = [r for r in await facts.of(manifest) if r.subject != subject]
                        position = folded(cluster_state, honest, position)
    finally:
        await broker.stop()
    return cluster_state


def folded(cluster_state: ClusterState, records: list[Record], position: int) -> int:
    draft = Draft(cluster_state)
    fold(draft, records, position)
    draft.commit()
    return position + len(records)


def beliefs(cluster_state: ClusterState) -> dict[str, dict[str, bytes]]:
    return {
        table: {key: encode(state) for key, state in held.items() if key != HOSTILE_NODE}
        for table, held in tables_of(cluster_state).items()
        if table in BELIEFS
    }


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(8.0, marks=pytest.mark.timeout(300)),
        pytest.param(600.0, marks=[pytest.mark.drill, pytest.mark.timeout(1800)]),
    ],
)
@pytest.mark.long
def test_a_demo_continues_despite_hostile_agents_and_clients_and_folds_none_of_their_claims(
    tmp_path: Path, seconds: float
) -> None:
    with demo(tmp_path, "--nodes", "40", "--seed", "7") as running:
        running.await_decisions(20)
        attempts, half, whole = asyncio.run(under_attack(running, seconds))
        running.await_decisions(running.counts().answers + 20)
        told = running.end()

    assert all(attempts), attempts
    expected = dict.fromkeys(whole.restarts, 0)
    assert whole.restarts == half.restarts == expected, last_lines(DataDirectory(tmp_path))
    for part, mib in whole.resident_mib.items():
        assert mib - half.resident_mib[part] < GROWTH_MIB, (part, half, whole)
    with History.of(DataDirectory(tmp_path).database) as history:
        believed = beliefs(history.cluster_state())
    subject = LOCAL.of(power(HOSTILE_NODE, 1.0), agent_name(HOSTILE_NODE))
    assert believed == beliefs(asyncio.run(beliefs_without(DataDirectory(tmp_path), subject)))
    code, again = told_by("replay", "--data", tmp_path)
    assert (code, again["mismatches"]) == (0, 0)
    assert again["decisions"] >= told["decisions"]  # the last answers arrive after the count
    assert told_by("verify", "--data", tmp_path)[0] == 0


async def under_attack(running: Running, seconds: float) -> tuple[list[int], Seen, Seen]:
    async with attacked(running) as attackers:
        await asyncio.sleep(seconds / 2)
        half = seen(running.data)
        await asyncio.sleep(seconds / 2)
        whole = seen(running.data)
        return [sum(attacker.attempts.values()) for attacker in attackers], half, whole
