"""A `joulie` of its own process beside an API server, told to end when the block does."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path

from joulie_cli.supervisor.supervisor import free_addresses

ENVIRONMENT = {
    "LEASE_DURATION": "2s",
    "RECONCILE_INTERVAL": "1s",
    "STATIC_HP_FRAC": "0.5",
    "POD_NAMESPACE": "joulie-system",
}


@contextlib.asynccontextmanager
async def joulie(
    command: str, kubeconfig: Path, data: Path, patience_s: float, *options: str, **environ: str
) -> AsyncGenerator[Process, None]:
    told = ["--data", str(data), "--kubeconfig", str(kubeconfig), *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", command, *told),
        env={**os.environ, **ENVIRONMENT, **free_addresses(), **environ},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), patience_s)
