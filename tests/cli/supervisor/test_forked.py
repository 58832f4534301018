"""Components are forked from one process that imported them: their names, and how they end."""

import os
import signal
import time
from pathlib import Path

import pytest

from joulie_demo import Running, running
from joulie_projections.component.data_directory import is_alive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
COMPONENTS = {"projector", "operator", "extender", "console", "ledger"}


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def components_of(up: Running) -> dict[str, int]:
    return {name: pid for name, pid in up.pids().items() if name != "nats-server"}


def fork_server_of(pids: dict[str, int]) -> int:
    [parent] = {int(status_of(pid)["PPid"]) for pid in pids.values()}
    return parent


def has_ended(pid: int) -> bool:
    return not is_alive(pid) or status_of(pid)["State"].startswith("Z")


def test_components_share_one_import_and_have_names_of_their_own(tmp_path: Path) -> None:
    with running("up", tmp_path, KUBECONFIG="") as up:
        up.wait_until(lambda: set(components_of(up)) == COMPONENTS)
        pids = components_of(up)
        up.wait_until(lambda: all(named(pid).startswith("joulie ") for pid in pids.values()))

        assert fork_server_of(pids) != up.process.pid
        assert {name: named(pid) for name, pid in pids.items()} == {
            name: f"joulie {name}"[:15] for name in pids
        }


def named(pid: int) -> str:
    return status_of(pid)["Name"]


@pytest.mark.long
def test_components_end_with_a_killed_fork_server_and_start_again(tmp_path: Path) -> None:
    with running("up", tmp_path, KUBECONFIG="") as up:
        up.wait_until(lambda: set(components_of(up)) == COMPONENTS)
        before = components_of(up)

        os.kill(fork_server_of(before), signal.SIGKILL)

        up.wait_until(lambda: all(map(has_ended, before.values())))
        up.wait_until(lambda: set(components_of(up)) == COMPONENTS)
        up.wait_until(lambda: not set(components_of(up).values()) & set(before.values()))
        assert not has_ended(fork_server_of(components_of(up)))


def test_no_component_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with running("up", tmp_path, KUBECONFIG="") as up:
        up.wait_until(lambda: set(components_of(up)) == COMPONENTS)
        pids = up.pids()
        server = fork_server_of(components_of(up))

        up.process.kill()
        up.process.communicate(timeout=60)

        wait_until_ended([*pids.values(), server])


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if not has_ended(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
