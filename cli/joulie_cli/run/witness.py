"""`joulie witness`: cosigns the checkpoints of logs, from a process and a key of its own."""

import argparse
import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from joulie_bus.errors import SettingsError, WitnessIncomplete
from joulie_bus.runtime import logging
from joulie_bus.runtime.settings import address
from joulie_cli.wiring import Wiring, run_until_signalled
from joulie_projections.chain.note import VerifierKey
from joulie_projections.witness.cosigner import witness_of
from joulie_projections.witness.seen import FILE, Seen
from joulie_projections.witness.server import bound

SETTINGS = ()
T = TypeVar("T")
log = logging.get_logger("witness")


def run(args: argparse.Namespace, _: Wiring) -> int:
    if args.state is None:
        raise WitnessIncomplete("No directory is named", "--state DIR, a directory of its own")
    witness = witness_of(args.state, args.name)
    if args.action == "key":
        print(witness.key)
        return 0
    if not args.log:
        how = "--log KEY; `joulie keys list` prints the KEY where the log is"
        raise WitnessIncomplete("No log is named, so there is nothing to witness", how)
    logs = [_read("--log", VerifierKey.parse, text) for text in args.log]
    at = _read("--listen", address, args.listen)
    server = bound(at, witness, Seen(args.state / FILE, logs))

    async def serve(stop: asyncio.Event) -> None:
        where, names = f"{at.host}:{server.server_port}", [key.name for key in logs]
        log.info("witnessing", key=str(witness.key), at=where, logs=names)
        threading.Thread(target=server.serve_forever, name="witness", daemon=True).start()
        await stop.wait()
        await asyncio.to_thread(server.shutdown)

    with server:
        return run_until_signalled(serve).code


def _read(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError([f"{option} {text[:200]!r}: {error}"]) from error
