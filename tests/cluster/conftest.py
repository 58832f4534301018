"""A kube-apiserver with four managed nodes, real or stand-in."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kube_builders import schedulable
from kube_conditions import NODES
from kube_real import ASSETS, Running, program_or_skip, real_server

# The stand-in was compared with this one.
VERSION = '[ "$1" = --version ] && echo Kubernetes v1.34.1 && exit'
KIT = Path(__file__).parents[1] / "kit" / "kube"


def stand_in(directory: Path) -> Path:
    """A directory with programs of the same names and flags as the real ones."""
    directory.mkdir()
    scripts = {
        "etcd": "sleep 600",
        "kube-apiserver": f'{sys.executable} {KIT}/kube_program.py "$@"',
    }
    for name, line in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\n{VERSION}\nexec {line}\n")
        path.chmod(0o755)
    return directory


@pytest.fixture(params=["real", "stand-in"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Running, None]:
    if request.param == "stand-in":
        programs = stand_in(tmp_path / "programs")
    else:
        programs = program_or_skip(ASSETS, "kube-apiserver", "etcd").parent
    async with real_server(tmp_path / "server", programs) as running:
        for number in range(4):
            await running.put(NODES, schedulable(f"n{number}"))
        yield running
