"""cosign checkpoints of the logs of others that extend what was seen of them.

joulie witness key --state /srv/witness --name w1.example.com
joulie witness --state /srv/witness --log KEY
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    import asyncio
    import ssl

    from joulie_projections.component.wiring import Wiring
    from joulie_projections.witness.cosigner import Witness


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("serve", "key"), default="serve", help="key prints its key"
    )
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="its key, and what it saw"
    )
    parser.add_argument(
        "--name", default="", help="its name, such as w1.example.com; stays as first given"
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="KEY",
        help="a key of a log to witness, as `joulie keys list` prints it; repeatable",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:9880", metavar="ADDR", help="(127.0.0.1:9880)"
    )
    for name, what in (("cert", "certificate"), ("key", "private key")):
        parser.add_argument(
            f"--{name}", type=Path, metavar="FILE", help=f"{what} (PEM), to listen beyond loopback"
        )


T = TypeVar("T")


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, _: Wiring) -> int:
    from joulie_bus.errors import SettingsError

    witness = _opened(args.state, args.name)
    if args.action == "key":
        print(witness.key)
        return 0
    if not args.log:
        how = "give the KEY that `joulie keys list` prints where the log is"
        raise SettingsError([f"--log: no log is named, so there is nothing to witness; {how}"])
    return _serve(args, witness)


def _opened(state: Path, name: str) -> Witness:
    from joulie_bus.errors import SettingsError
    from joulie_bus.runtime.system_errors import reason_of
    from joulie_projections.chain.note import NotANote
    from joulie_projections.witness.cosigner import witness_of

    try:
        return witness_of(state, name)
    except NotANote as error:
        raise SettingsError([f"--name {name}: {error}"]) from error
    except OSError as error:
        raise SettingsError([f"--state {state}: {reason_of(error)}"]) from error


def _serve(args: argparse.Namespace, witness: Witness) -> int:
    import asyncio
    import threading

    from joulie_bus.runtime import logging
    from joulie_bus.runtime.settings import address
    from joulie_projections.chain.note import VerifierKey
    from joulie_projections.component.process import run_until_signalled
    from joulie_projections.witness.seen import FILE, Seen
    from joulie_projections.witness.server import bound

    log = logging.get_logger("witness")
    logs = [_read("--log", VerifierKey.parse, text) for text in args.log]
    at = _read("--listen", address, args.listen)
    server = bound(at, witness, Seen(args.state / FILE, logs), _tls(args, at.host))

    async def serve(stop: asyncio.Event) -> None:
        where, names = f"{at.host}:{server.server_port}", [key.name for key in logs]
        log.info("witnessing", key=str(witness.key), at=where, logs=names)
        threading.Thread(target=server.serve_forever, name="witness", daemon=True).start()
        await stop.wait()
        await asyncio.to_thread(server.shutdown)

    with server:
        return run_until_signalled(serve).code


def _tls(args: argparse.Namespace, host: str) -> ssl.SSLContext | None:
    """Beyond loopback a host between could answer in place of the witness."""
    import ssl

    from joulie_bus.core.http_head import is_loopback
    from joulie_bus.errors import SettingsError
    from joulie_bus.runtime.system_errors import reason_of

    if args.cert is None and args.key is None:
        if is_loopback(host):
            return None
        raise SettingsError(
            [
                f"--listen {args.listen}: give --cert and --key, or listen on 127.0.0.1 behind a "
                "proxy with TLS"
            ]
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.cert or args.key, args.key)
    except OSError as error:
        raise SettingsError([f"--cert, --key: {reason_of(error)}"]) from error
    return context


def _read(option: str, parse: Callable[[str], T], text: str) -> T:
    from joulie_bus.errors import SettingsError

    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError([f"{option} {text[:200]!r}: {error}"]) from error
