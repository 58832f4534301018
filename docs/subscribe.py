"""Prints every score as it is given, straight from the broker, with the read-only credential.

python docs/subscribe.py NATS_URL PASSWORD_FILE [CLUSTER]
"""

import asyncio
import sys
from pathlib import Path

import nats

from joulie_bus.events import PrioritizeDecided, codec


async def main(url: str, password_file: str, cluster: str = "local") -> None:
    password = Path(password_file).read_text()
    client = await nats.connect(
        url, user="viewer", password=password, inbox_prefix=b"_INBOX_viewer"
    )
    heard = await client.subscribe(f"joulie.dec.{cluster}.*")
    await client.flush()
    print("listening", flush=True)
    async for message in heard.messages:
        event = codec.decoded(message.data, message.subject)
        if isinstance(event, PrioritizeDecided) and event.top:
            best, pod = event.top[0], event.pod
            print(f"{pod.namespace}/{pod.name} -> {best.node} {best.score:.1f}", flush=True)


asyncio.run(main(*sys.argv[1:]))
