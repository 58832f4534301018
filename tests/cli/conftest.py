"""What several modules start from."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from joulie_cli.main import main
from recorded_demo import RecordedDemo, recorded_once

GOLDEN = Path(__file__).parents[1] / "audit/golden"


@pytest.fixture(scope="session")
def recorded_demo(tmp_path_factory: pytest.TempPathFactory) -> RecordedDemo:
    """The log of twenty nodes and forty answers. Tests use copies of it."""
    base = tmp_path_factory.getbasetemp()
    return recorded_once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def demo_data(recorded_demo: RecordedDemo, tmp_path: Path) -> Path:
    """A copy of the recorded data directory, of the test's own."""
    return shutil.copytree(recorded_demo.data, tmp_path / "data")


class Golden(NamedTuple):
    """The golden log, restored; its facts are read from the archive that it was restored from."""

    data: Path
    archive: Path


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """For tests that change nothing in it."""
    data = tmp_path_factory.mktemp("golden") / "data"
    assert main(["archive", "restore", "--dir", str(GOLDEN), "--data", str(data)]) == 0
    return Golden(data, GOLDEN)
