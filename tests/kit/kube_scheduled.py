"""A kube-scheduler beside a kube-apiserver, as deploy/ configures it.

KUBE_SCHEDULER leads to another one than that which `make kube` has built.
"""

import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import yaml  # type: ignore[import-untyped]

from kube_real import DEPLOY, SCHEDULER, Running, Tree, program, started


def deployed_block(file: str, extender: str) -> Tree:
    """A configuration out of deploy/, with our extender at a loopback address, without TLS."""
    told: Tree = yaml.safe_load((DEPLOY / file).read_text())
    for block in told["extenders"]:
        here = urlsplit(block["urlPrefix"])._replace(scheme="http", netloc=extender)
        block["urlPrefix"] = here.geturl()
        for name in ("enableHTTPS", "tlsConfig"):
            del block[name]
    return told


@contextlib.asynccontextmanager
async def scheduling(server: Running, told: Tree, port: int = 0) -> AsyncGenerator[Process, None]:
    """With that configuration, until the end of the block; tells its metrics at a port, if any."""
    client = told.get("clientConnection", {}) | {"kubeconfig": str(server.kubeconfig("admin"))}
    whole = told | {"clientConnection": client, "leaderElection": {"leaderElect": False}}
    config = server.directory / "scheduler.yaml"
    config.write_text(yaml.safe_dump(whole))
    flags = [
        f"--config={config}",
        f"--secure-port={port}",
        f"--cert-dir={server.directory / 'scheduler'}",
        "--authorization-always-allow-paths=/metrics",
    ]
    async with started([str(program(SCHEDULER)), *flags], server.directory) as process:
        yield process
