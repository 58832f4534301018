"""The place of a cluster with containers."""

from pathlib import Path

import pytest

import node_network


@pytest.fixture
def place() -> Path:
    try:
        return node_network.place()
    except node_network.NoNetworkOfItsOwn as missing:
        pytest.skip(str(missing))
