"""An upgrade from code of an older schema and back, while pods are placed all the time.

The older code comes from the history of this repository and runs in this environment. Each
component is replaced by itself, and the two versions work beside each other meanwhile.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import joulie_migrations
import older_version
from joulie_bus.broker.embedded import Embedded
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.testing import bare_broker, until
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import History
from joulie_projections.state.rows import decode
from joulie_projections.state.state import PodState
from joulie_projections.store import database
from mixed_versions import Code

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
ANSWERS = 40  # by each version in turn, at the least
SMALL_MILLI = 16_000  # of a pod that fits on many nodes
PATIENCE_S = 600.0  # the machine may be slow
ROLES = {
    "migrate": Role.ADMIN,
    "projector": Role.PROJECTOR,
    "operator": Role.OPERATOR,
    "extender": Role.EXTENDER,
    "simulator": Role.SIMULATOR,
    "replay": Role.AUDITOR,
    "verify": Role.AUDITOR,
    "rebuild": Role.PROJECTOR,
}


NEW = Code("new", "")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Code:
    try:
        place = older_version.extracted(tmp_path_factory.mktemp("older"))
    except older_version.OlderVersionMissing as missing:
        pytest.skip(f"requires the history of the repository: {missing}")
    return Code("old", older_version.import_path(place))


class Site:
    """Components of one or the other version at one broker and one database."""

    def __init__(self, broker: Embedded, data: Path) -> None:
        self.broker = broker
        self.data = DataDirectory(data)
        self._extender = f"127.0.0.1:{free_port()}"
        self._running: dict[str, Process] = {}

    def environment(self, part: str, code: Code) -> dict[str, str]:
        address = self.broker.address_of(ROLES[part])
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NATS_")}
        return clean | {
            **address.as_settings(),
            "EXTENDER_ADDR": self._extender,
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
            "RECONCILE_INTERVAL": "1s",
            "PYTHONPATH": code.path,
        }

    def words(self, part: str, *options: str) -> list[str]:
        main = [sys.executable, "-m", "joulie_cli.main"]
        return [*main, part, *options, "--data", str(self.data.path)]

    async def run(self, code: Code, part: str, *options: str, or_code: int = 0) -> str:
        """Runs a command to its end; it must succeed, or end with this code."""
        done = await asyncio.to_thread(
            subprocess.run,
            self.words(part, *options),
            env=self.environment(part, code),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, or_code), done.stdout + done.stderr
        return done.stdout

    async def start(self, code: Code, part: str, *options: str) -> None:
        with (self.data.path / f"{part}.{code.name}.log").open("ab") as words:
            self._running[part] = await asyncio.create_subprocess_exec(
                *self.words(part, *options),
                env=self.environment(part, code),
                stdout=words,
                stderr=words,
                preexec_fn=die_with_parent,
            )

    async def stop(self, part: str) -> None:
        process = self._running.pop(part)
        assert process.returncode is None, f"{part} ended by itself with {process.returncode}"
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), PATIENCE_S)

    async def replace(self, code: Code, *, rebuilds: bool = False) -> None:
        """One component after the other, as a rollout does."""
        for part in ("projector", "extender", "operator"):
            await self.stop(part)
            if rebuilds and part == "projector":
                await self.run(code, "rebuild")
            await self.start(code, part)

    async def end(self) -> None:
        for part in list(self._running):
            with contextlib.suppress(AssertionError):
                await self.stop(part)

    async def await_more_answers(self) -> None:
        goal = self.answers() + ANSWERS
        await until(lambda: self.answers() >= goal, PATIENCE_S)

    def answers(self) -> int:
        with History.of(self.data.database) as history:
            return history.counts().answers

    def pending(self) -> set[str]:
        with History.of(self.data.database) as history:
            rows = history.states("pod")
        return {row.key for row in rows if row.body is not None and is_pending(row.body)}

    async def places_all_that_wait(self) -> None:
        """Pods keep arriving, so those that wait now are followed; not those that ask for so much
        that only an empty node has it.
        """
        waiting = self.pending()
        await until(lambda: not waiting & self.pending(), PATIENCE_S)

    def schema(self) -> str:
        engine = database.reader(self.data.database)
        try:
            return joulie_migrations.current(engine)
        finally:
            engine.dispose()


def is_pending(body: bytes) -> bool:
    state = decode("pod", body)
    if not isinstance(state, PodState) or state.node or state.finished:
        return False
    return not state.pod.gpu_milli and state.pod.cpu_milli <= SMALL_MILLI


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site, None]:
    (tmp_path / "data").mkdir()
    async with bare_broker(tmp_path / "broker") as broker:
        made = Site(broker, tmp_path / "data")
        try:
            yield made
        finally:
            await made.end()


async def is_whole(site: Site) -> dict[str, Any]:
    """The log is valid and complete, and all decisions and plans of both versions are recomputed.
    States that the folds of the other version made differ, as `joulie replay` says.
    """
    await site.run(NEW, "verify")
    said = await site.run(NEW, "replay", "--json", or_code=1)
    replayed: dict[str, Any] = json.loads(said)
    with History.of(site.data.database) as history:
        assert not history.set_aside()  # no fact was left out
        manifests = list(history.manifests())
        kinds = {entry.kind for entry in history.entries()}
    ends = [0, *(each.p_to for each in manifests)]
    assert [each.p_from for each in manifests] == [end + 1 for end in ends[:-1]]
    assert kinds & {"decision.dropped", "unreadable"} == set()
    older_version.assert_recomputed(replayed)
    return replayed


async def test_no_decision_and_no_pod_is_lost_by_an_upgrade_and_a_rollback(
    site: Site, old: Code
) -> None:
    await site.run(old, "migrate")
    assert site.schema() == older_version.SCHEMA
    for part in ("projector", "operator", "extender"):
        await site.start(old, part)
    await site.start(old, "simulator", "--nodes", "20", "--pods-per-second", "2", "--speed", "20")
    await site.await_more_answers()

    await site.run(NEW, "migrate", "--phase", "pre")
    assert site.schema() == joulie_migrations.NEWEST
    await site.await_more_answers()  # by the old code, on the new schema
    await site.replace(NEW)
    await site.await_more_answers()
    await site.places_all_that_wait()
    await is_whole(site)

    await site.replace(old, rebuilds=True)  # it does not know all that the new code put into rows
    await site.await_more_answers()
    await site.places_all_that_wait()
    await is_whole(site)

    await site.replace(NEW)
    await site.run(NEW, "migrate", "--phase", "post")
    await site.await_more_answers()
    await site.places_all_that_wait()
    done = await is_whole(site)
    assert done["decisions"] >= 5 * ANSWERS
