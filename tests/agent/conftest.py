import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nvml_recordings

Once = Callable[..., dict[str, Any]]
# The program as it is where the extra `agent` is not installed: its libraries cannot be imported.
WITHOUT_THE_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(("grpclib", "h2", "pynvml")))
from joulie_cli.main import main
sys.exit(main())
"""


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_recordings.library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def once(tmp_path: Path) -> Once:
    """What `joulie agent --once -o json` prints for a host below a folder."""

    def run(host: Path, *, has_extra: bool = True, **environ: str) -> dict[str, Any]:
        words = ["agent", "--once", "-o", "json", "--host-root", str(host)]
        program = ["-m", "joulie_cli.main"] if has_extra else ["-c", WITHOUT_THE_EXTRA]
        done = subprocess.run(
            [sys.executable, *program, *words],
            env={"NODE_NAME": "n1", "JOULIE_DATA": str(tmp_path / "data"), **environ},
            capture_output=True,
            check=True,
            timeout=60,
        )
        printed: dict[str, Any] = msgspec.json.decode(done.stdout)
        return printed

    return run
