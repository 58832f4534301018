"""migrate the database to this version's schema and create missing streams.

joulie migrate --phase pre
joulie migrate --from-url sqlite:////srv/joulie/joulie.db --to-url postgresql://owner@db/joulie
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

PHASES = ("pre", "post")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--phase", choices=PHASES, help="before or after the new code is rolled out"
    )
    parser.add_argument(
        "--new-broker",
        action="store_true",
        help="the streams are lost: continue the log on an empty broker",
    )
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="the streams were restored from a snapshot: continue the log with them",
    )
    parser.add_argument(
        "--from-url", dest="source", metavar="URL", help="copy this database, of stopped components"
    )
    parser.add_argument(
        "--to-url", dest="target", metavar="URL", help="into this one, which is empty"
    )


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    import joulie_migrations
    from joulie_projections.component.connecting import names_a_broker
    from joulie_projections.relocation.moving import as_text, move
    from joulie_projections.store import database

    if args.source or args.target:
        print(as_text(asyncio.run(move(args.source, args.target))))
        return 0
    wires.data.create()
    engine = database.migrator(wires.data.database)
    try:
        database.require_reachable(engine)
        if not (args.adopt or args.new_broker) and names_a_broker(wires):
            _prepare_streams(wires)  # an embedded broker gets its streams at every start
        reached = joulie_migrations.upgrade(engine, args.phase or "")
        print(f"{database.without_password(wires.data.database)} is at schema {reached}.")
    finally:
        engine.dispose()
    if args.adopt:
        return _adopt(wires)
    if args.new_broker:
        return _continue(wires)
    return 0


def _prepare_streams(wires: Wiring) -> None:
    """Before the schema: components that wait for the schema find the streams, too."""
    import asyncio

    from joulie_bus.jetstream.streams import prepare_streams
    from joulie_bus.streams.roles import Role
    from joulie_projections.component.connecting import address_of

    address = address_of(wires, Role.ADMIN)
    asyncio.run(prepare_streams(address, wires.subjects, wires.bus.nats_replicas))
    print(f"The streams are at {address.safe_url}.")


def _continue(wires: Wiring) -> int:
    import asyncio

    from joulie_projections.relocation.new_broker import continue_streams

    ends = asyncio.run(continue_streams(wires))
    for stream, end in sorted(ends.items()):
        print(f"{stream} continues after {end}.")
    print("Messages that only the lost streams held are lost. Start the components again.")
    return 0


def _adopt(wires: Wiring) -> int:
    import asyncio

    from joulie_projections.relocation.new_broker import adopt_streams

    ends = asyncio.run(adopt_streams(wires))
    for stream, end in sorted(ends.items()):
        print(f"{stream} holds what was read, up to {end}.")
    print("Start the components again.")
    return 0
