"""The broker that a command connects to, and the user of the connection."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from msgspec.structs import replace

from joulie_bus.broker.embedded import address_within
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import require
from joulie_bus.runtime import nats_keys
from joulie_bus.streams.roles import CORE_ROLES, Role, inbox
from joulie_projections.component.wiring import Wiring


def names_a_broker(wires: Wiring) -> bool:
    names = ("NATS_URL", "NATS_USER", "NATS_CREDS_FILE")
    return any(wires.source.names(name) for name in names)


def address_of(wires: Wiring, role: Role) -> Address:
    """The broker of the settings; if they name none, the embedded one of the data directory."""
    running = wires.data.running()
    if running is not None and not names_a_broker(wires):
        return address_within(wires.data.path, running.nats_url, role)
    direct = (wires.bus.nats_user or role) not in CORE_ROLES
    address = replace(broker_of_settings(wires), direct=direct)
    return address if names_a_broker(wires) else replace(address, advice=_nothing_runs(wires))


def _nothing_runs(wires: Wiring) -> str:
    here = f"no `joulie up` runs in {wires.data.path}"
    return f"NATS_URL is not set, and {here}: start it, or set NATS_URL."


def broker_of_settings(wires: Wiring) -> Address:
    bus = wires.bus
    creds = bus.nats_creds_file
    content = Path(creds).read_text() if creds else ""
    is_token, has_jwt = nats_keys.is_token(content), nats_keys.is_credentials(content)
    return Address(
        url=bus.nats_url,
        user=bus.nats_user,
        password=bus.nats_password,
        nkey_file="" if has_jwt or is_token else creds,
        creds_file=creds if has_jwt else "",
        token_file=creds if is_token else "",
        ca_file=bus.nats_ca_file,
        cert_file=bus.nats_cert_file,
        key_file=bus.nats_key_file,
        inbox=bus.nats_inbox,
    )


def address_for(wires: Wiring, role: Role, name: str = "") -> Address:
    address = replace(address_of(wires, role), of_agent=role is Role.AGENT)
    return replace(address, inbox=inbox(role, name)) if address.token_file and name else address


@contextlib.asynccontextmanager
async def connected(
    wires: Wiring, role: Role, name: str = ""
) -> AsyncGenerator[JetStreamLog, None]:
    """`name` is that of a node. A token proves it: its inbox has that name then. The user of a
    node may not ask for the streams, so that its readings wait for them instead."""
    connection = await Connection.open(address_for(wires, role, name), f"joulie-{role}")
    try:
        if not name:
            await require(connection, wires.subjects)
        async with JetStreamLog.over(connection) as bus:
            yield bus
    finally:
        await connection.close()
