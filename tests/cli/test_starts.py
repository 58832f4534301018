"""What is checked before anything starts, and how a process ends."""

import asyncio
import os
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_cli.supervisor.supervisor import free_addresses
from joulie_demo import joulie, running
from joulie_forked import Command
from joulie_projections.component.data_directory import is_alive

PATIENCE_S = 120.0
KUBERNETES_S = 30.0  # from SIGTERM to SIGKILL
LEAST_FREE = "joulie_cli.supervisor.start_checks.LEAST_FREE_BYTES"
STARTS = pytest.mark.parametrize("command", ["up", "demo"])


@pytest.fixture
def taken() -> Generator[str, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def runs_there(data: Path) -> list[str]:
    return [name for name in ("run.json", "nats", "joulie.db") if (data / name).exists()]


@STARTS
@pytest.mark.parametrize("name", ["EXTENDER_ADDR", "CONSOLE_ADDR", "METRICS_ADDR"])
def test_a_port_in_use_is_one_line_before_anything_starts(
    command: str, name: str, taken: str, tmp_path: Path
) -> None:
    done = joulie(command, "--data", tmp_path, "--for", "1s", **free_addresses() | {name: taken})

    assert done.returncode == 1
    assert f"joulie {command}: Nothing can listen on {taken}: " in done.stderr
    assert "Traceback" not in done.stderr
    assert runs_there(tmp_path) == []


def test_one_address_for_two_components_is_in_use(tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"

    done = joulie("up", "--data", tmp_path, EXTENDER_ADDR=at, CONSOLE_ADDR=at)

    assert done.returncode == 1
    assert f"Nothing can listen on {at}" in done.stderr


@pytest.mark.parametrize("content", [None, "not: [a kubeconfig", "kind: Config\n", "- a list\n"])
def test_a_bad_kubeconfig_is_one_line_before_anything_starts(
    content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)

    done = joulie("up", "--data", tmp_path / "data", "--kubeconfig", file, **free_addresses())

    assert done.returncode == 1
    assert done.stderr.startswith(f"joulie up: KUBECONFIG='{file}' cannot be used: ")
    assert done.stderr.count("\n") == 1
    assert runs_there(tmp_path / "data") == []


@pytest.mark.parametrize("has_archive", [False, True])
def test_a_start_without_an_archive_is_a_warning(has_archive: bool, tmp_path: Path) -> None:
    archive = {"ARCHIVE_DIR": str(tmp_path / "archive")} if has_archive else {}

    done = joulie("up", "--data", tmp_path / "data", "--for", "1s", **free_addresses(), **archive)

    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if "no_archive" in line]
    assert len(warnings) == (0 if has_archive else 1)
    assert all("only grow" in line and "set ARCHIVE_DIR" in line for line in warnings)


@STARTS
def test_a_full_disk_is_one_line_before_anything_starts(command: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    kept = Path(tempfile.mkdtemp(dir=tmp_path))
    words: list[str | Path] = [command, "--data", data]
    environ = {**os.environ, **free_addresses()}
    started = Command(words, environ, kept, constants={LEAST_FREE: 2**62})

    assert started.wait(PATIENCE_S)
    done = started.done()
    assert done.returncode == 1
    assert f"The data directory {data} has no room: " in done.stderr
    assert runs_there(data) == []


@STARTS
def test_a_database_of_another_program_is_left_alone(command: str, tmp_path: Path) -> None:
    file, data = tmp_path / "theirs.db", tmp_path / "data"
    with closing(sqlite3.connect(file)) as theirs:
        theirs.execute("CREATE TABLE users (name TEXT)")
        theirs.commit()
    before = file.read_bytes()

    environ = {**free_addresses(), "DATABASE_URL": f"sqlite:///{file}"}
    done = joulie(command, "--data", data, **environ)

    assert done.returncode == 2
    assert "The database of DATABASE_URL has no tables of Joulie. " in done.stderr
    assert file.read_bytes() == before
    assert runs_there(data) == []


def test_ctrl_c_ends_a_question_with_130(tmp_path: Path) -> None:
    joulie("migrate", "--data", tmp_path / "data")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        words: list[str | Path] = ["ledger", "--once", "--data", tmp_path / "data"]
        asked = Command(words, {**os.environ, "NATS_URL": url}, tmp_path)
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()  # it waits for the broker now
        with connection:
            asked.interrupt()
            assert asked.wait(PATIENCE_S)

    assert asked.done().returncode == 130
    assert "Traceback" not in asked.done().stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_component_ends_with_130_after_ctrl_c_only(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    joulie("migrate", "--data", tmp_path / "data")
    at = free_port()
    environ = {**os.environ, **free_addresses(), "EXTENDER_ADDR": f"127.0.0.1:{at}"}
    started = Command(["extender", "--data", tmp_path / "data"], environ, tmp_path)
    await_line("serving", started)
    if number is signal.SIGINT:
        started.interrupt()
    else:
        started.stop()

    assert started.wait(PATIENCE_S)
    assert started.done().returncode == code


def test_a_component_that_does_not_end_kills_itself_and_reports_it(tmp_path: Path) -> None:
    """Such as one with a thread that hangs in a database."""
    kept = Path(tempfile.mkdtemp(dir=tmp_path))
    words: list[str | Path] = ["extender", "--data", tmp_path / "data"]
    environ = {**os.environ, **free_addresses()}
    joulie("migrate", "--data", tmp_path / "data")
    hanging = {
        "joulie_bus.http.server.HttpServer.drain": hangs,
        "joulie_projections.component.ending.END_S": 0.1,
    }
    started = Command(words, environ, kept, constants=hanging)
    await_line("serving", started)

    started.stop()

    assert started.done().returncode == 1
    assert "it ends after SIGTERM, and has not ended in 0.1 s" in started.said()


async def hangs(_: object) -> None:
    await asyncio.to_thread(threading.Event().wait)


def await_line(words: str, started: Command) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while words not in started.said():
        assert time.monotonic() < deadline, started.said()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.long
def test_components_that_do_not_react_end_together_within_the_time_of_kubernetes(
    tmp_path: Path,
) -> None:
    """In turn they would take the sum of their times."""
    with running("up", tmp_path, KUBECONFIG="") as up:
        up.wait_until(lambda: len(up.pids()) == 6)
        pids = up.pids()
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        up.process.terminate()
        _, err = up.process.communicate(timeout=PATIENCE_S)
        took_s = time.monotonic() - began

    assert up.process.returncode == 0, err
    assert took_s < KUBERNETES_S
    assert [name for name, pid in pids.items() if is_alive(pid)] == []
