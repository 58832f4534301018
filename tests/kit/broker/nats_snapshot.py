"""Snapshots of streams by the API of nats-server, as `nats stream backup` and `restore` use it."""

import asyncio
import json
from typing import Any, NamedTuple

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from joulie_bus.jetstream.connection import Address
from joulie_bus.streams.subjects import Stream

_PATIENCE_S = 120.0


class Snapshot(NamedTuple):
    stream: Stream
    made: dict[str, Any]
    chunks: list[bytes]


async def connected(address: Address) -> Client:
    return await nats.connect(
        address.url,
        user=address.user,
        password=address.password,
        inbox_prefix=address.inbox,
    )


async def snapshot_of(client: Client, stream: Stream) -> Snapshot:
    subject, chunks, whole = client.new_inbox(), list[bytes](), asyncio.Event()

    async def take(message: Msg) -> None:
        if not message.data:
            whole.set()
            return
        chunks.append(message.data)
        if message.reply:
            await message.respond(b"")

    subscription = await client.subscribe(subject, cb=take)
    made = await _asked(client, f"SNAPSHOT.{stream}", {"deliver_subject": subject})
    await asyncio.wait_for(whole.wait(), _PATIENCE_S)
    await subscription.unsubscribe()
    return Snapshot(stream, made, chunks)


async def restore(client: Client, snapshot: Snapshot) -> None:
    """In place of the stream, if there is one."""
    await _asked(client, f"DELETE.{snapshot.stream}", {})
    wanted = {name: snapshot.made[name] for name in ("config", "state")}
    made = await _asked(client, f"RESTORE.{snapshot.stream}", wanted)
    for chunk in snapshot.chunks:
        await client.request(made["deliver_subject"], chunk, timeout=_PATIENCE_S)
    answer = await client.request(made["deliver_subject"], b"", timeout=_PATIENCE_S)
    assert "error" not in json.loads(answer.data), answer.data


async def _asked(client: Client, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    payload = json.dumps(body).encode() if body else b""
    answer = await client.request(f"$JS.API.STREAM.{verb}", payload, timeout=_PATIENCE_S)
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, found
    return found
