"""A demo on a machine without CPU waits for its first state, and says what it waits for."""

import os
import signal
from pathlib import Path

import pytest

from joulie_demo import demo

OLD_LIMIT_LINES = 3  # one each ten seconds: a demo must not end after half a minute


@pytest.mark.slow
@pytest.mark.long
def test_a_demo_whose_projector_gets_no_cpu_waits_and_says_so(tmp_path: Path) -> None:
    with demo(tmp_path / "data", "--nodes", "20") as running:
        running.wait_until(lambda: "projector" in running.pids())
        projector = running.pids()["projector"]
        os.kill(projector, signal.SIGSTOP)
        said = running.process.stderr
        assert said is not None
        lines = [said.readline() for _ in range(OLD_LIMIT_LINES)]
        os.kill(projector, signal.SIGCONT)
        assert all("for the first state of the projector, and waits on" in each for each in lines)
        assert str(running.data.logs / "projector.log") in lines[0]
        running.await_start()
        running.end()


@pytest.mark.slow
@pytest.mark.long
def test_a_demo_that_waits_ends_on_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path / "data", "--nodes", "20") as running:
        running.wait_until(lambda: "projector" in running.pids())
        projector = running.pids()["projector"]
        os.kill(projector, signal.SIGSTOP)
        said = running.process.stderr
        assert said is not None
        assert "waits on" in said.readline()
        running.process.send_signal(signal.SIGINT)
        running.process.communicate(timeout=60)  # the projector is killed after some seconds
        assert running.process.returncode == 130
