import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nvml_recordings

Once = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_recordings.library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def once(tmp_path: Path) -> Once:
    """What `joulie agent --once --json` prints for a host below a folder."""

    def run(host: Path, **environ: str) -> dict[str, Any]:
        words = ["agent", "--once", "--json", "--host-root", str(host)]
        done = subprocess.run(
            [sys.executable, "-m", "joulie_cli.main", *words],
            env={"NODE_NAME": "n1", "JOULIE_DATA": str(tmp_path / "data"), **environ},
            capture_output=True,
            check=True,
            timeout=60,
        )
        printed: dict[str, Any] = msgspec.json.decode(done.stdout)
        return printed

    return run
