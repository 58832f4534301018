"""Runs a kube-scheduler with the configuration in deploy/.

KUBE_SCHEDULER may name another program than the one that `make kube` has built.
"""

import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import urlsplit

import yaml  # type: ignore[import-untyped]

from kube_real import DEPLOY, SCHEDULER, Running, Tree, program, started


def deployed_block(file: str, extender: str) -> Tree:
    """A configuration of deploy/, with the extender at a loopback address, without TLS."""
    configuration: Tree = yaml.safe_load((DEPLOY / file).read_text())
    for block in configuration["extenders"]:
        here = urlsplit(block["urlPrefix"])._replace(scheme="http", netloc=extender)
        block["urlPrefix"] = here.geturl()
        for name in ("enableHTTPS", "tlsConfig"):
            del block[name]
    return configuration


@contextlib.asynccontextmanager
async def scheduling(
    server: Running,
    configuration: Tree,
    port: int = 0,
    name: str = "scheduler",
    flags: Sequence[str] = (),
) -> AsyncGenerator[Process, None]:
    """Runs a scheduler inside of the block; with a port, it serves metrics there. Each of several
    schedulers needs a name of its own."""
    client = configuration.get("clientConnection", {}) | {
        "kubeconfig": str(server.kubeconfig("admin"))
    }
    whole = configuration | {"clientConnection": client, "leaderElection": {"leaderElect": False}}
    config = server.directory / f"{name}.yaml"
    config.write_text(yaml.safe_dump(whole))
    whole_flags = [
        f"--config={config}",
        f"--secure-port={port}",
        f"--cert-dir={server.directory / name}",
        "--authorization-always-allow-paths=/metrics",
        *flags,
    ]
    async with started([str(program(SCHEDULER)), *whole_flags], server.directory) as process:
        yield process
