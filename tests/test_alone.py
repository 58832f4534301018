"""A test that failed beside others, perhaps because of them, is decided alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KIT = Path(__file__).parent / "kit" / "process"
CONFTEST = """
from alone import DecidedAlone

def pytest_configure(config):
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(DecidedAlone())
"""
LATE_AMONG_OTHERS = """
import os
def test_a():
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise TimeoutError
def test_b():
    pass
"""
LATE_EACH_TIME = LATE_AMONG_OTHERS.replace('if "PYTEST_XDIST_WORKER" in os.environ:', "if True:")
ANOTHER_FAILS = LATE_AMONG_OTHERS.replace("pass", "assert 1 == 2")
SLOW = LATE_AMONG_OTHERS.replace("raise TimeoutError", "assert 1 == 2").replace(
    "def test_a", "import pytest\n@pytest.mark.slow\ndef test_a"
)
QUICK = SLOW.replace("@pytest.mark.slow", "")
PASSED_ALONE = "failed beside others, and passed alone"


def run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {KIT}\nmarkers = slow\n")
    words = [sys.executable, "-m", "pytest", "-n", "1"]
    environ = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    return subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("tests", [LATE_AMONG_OTHERS, SLOW], ids=["late", "of processes"])
def test_what_fails_only_beside_others_passes_and_is_named(tests: str, tmp_path: Path) -> None:
    done = run(tmp_path, tests)

    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    heading = next(at for at, line in enumerate(lines) if PASSED_ALONE in line)
    assert lines[heading + 1] == "test_some.py::test_a"


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests", [LATE_EACH_TIME, ANOTHER_FAILS, QUICK], ids=["late", "another", "waits for nothing"]
)
def test_what_fails_alone_too_or_without_a_process_fails(tests: str, tmp_path: Path) -> None:
    done = run(tmp_path, tests)

    assert done.returncode == 1, done.stdout
    assert PASSED_ALONE not in done.stdout
