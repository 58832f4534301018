"""What several modules start from."""

import os
import shutil
from pathlib import Path

import pytest

from recorded_demo import RecordedDemo, recorded_once


@pytest.fixture(scope="session")
def recorded_demo(tmp_path_factory: pytest.TempPathFactory) -> RecordedDemo:
    """The log of twenty nodes and forty answers. Tests use copies of it."""
    base = tmp_path_factory.getbasetemp()
    return recorded_once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def demo_data(recorded_demo: RecordedDemo, tmp_path: Path) -> Path:
    """A copy of the recorded data directory, of the test's own."""
    return shutil.copytree(recorded_demo.data, tmp_path / "data")
