"""helm, where it is built, and a real API server without Joulie."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_real import ASSETS, HELM, Running, program_or_skip, real_server


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty home directory for helm."""
    program_or_skip(HELM)
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session")
def assets(home: Path) -> Path:
    """Requires the real programs: the stand-in knows none of the chart's kinds."""
    assert os.path.isdir(home)
    return program_or_skip(ASSETS, "etcd", "kube-apiserver").parent


@pytest.fixture
async def server(assets: Path, tmp_path: Path) -> AsyncGenerator[Running, None]:
    async with real_server(tmp_path / "server", assets, bare=True) as running:
        yield running
