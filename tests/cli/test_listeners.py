"""Listen addresses: loopback, or any other only with authentication of clients."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

import joulie_forked
from joulie_bus.runtime.ports import free_port


def joulie(command: str, data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "METRICS_ADDR": f"127.0.0.1:{free_port()}", **environ}
    return joulie_forked.joulie(command, "--data", data, environ=told)


@pytest.mark.parametrize(
    ("command", "name", "needs"),
    [
        ("extender", "EXTENDER_ADDR", "EXTENDER_ALLOW_UNAUTHENTICATED=true"),
        ("up", "EXTENDER_ADDR", "EXTENDER_TLS_CLIENT_CA_FILE"),
        ("demo", "EXTENDER_ADDR", "EXTENDER_ALLOW_UNAUTHENTICATED=true"),
        ("console", "CONSOLE_ADDR", "CONSOLE_TOKEN_FILE"),
        ("up", "CONSOLE_ADDR", "CONSOLE_TOKEN_FILE"),
    ],
)
def test_beyond_loopback_a_process_does_not_start_and_names_the_setting(
    command: str, name: str, needs: str, tmp_path: Path
) -> None:
    done = joulie(command, tmp_path / "data", **{name: f":{free_port()}"})

    assert done.returncode == 2
    assert done.stderr.count("Nothing was started.") == 1
    assert needs in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_taken_address_of_metrics_is_one_error_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        done = joulie("projector", tmp_path / "data", METRICS_ADDR=address)

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"Nothing can listen on {address}" in done.stderr
