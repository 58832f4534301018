"""sign the identities of agents for the broker's auth callout.

joulie signer --issuer issuer.nk
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_bus.broker.callout import Issuer
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--issuer",
        type=Path,
        required=True,
        metavar="FILE",
        help="nkey seed (SA...) of the issuer in the broker's configuration",
    )


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_bus.broker.callout import Issuer
    from joulie_bus.errors import SettingsError
    from joulie_bus.runtime.system_errors import reason_of
    from joulie_projections.component.process import serve_part

    try:
        issuer = Issuer.of(args.issuer.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError([f"--issuer {args.issuer}: {reason_of(error)}"]) from error
    return serve_part(wires, "signer", _serve(wires, issuer))


async def _serve(wires: Wiring, issuer: Issuer) -> None:
    from joulie_bus.broker.signer import Signer
    from joulie_bus.jetstream.connection import Connection
    from joulie_projections.component.connecting import broker_of_settings

    connection = await Connection.open(broker_of_settings(wires), "joulie-signer")
    try:
        await Signer(connection, issuer).run()
    finally:
        await connection.close()
