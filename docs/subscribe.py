"""Prints every score as it is given, straight from the broker, with the read-only credential.

python docs/subscribe.py NATS_URL PASSWORD_FILE [CLUSTER]
"""

import asyncio
import sys

from joulie.client import answers, events, events_of_broker


async def main(url: str, password_file: str, cluster: str = "local") -> None:
    broker = events_of_broker(url, password_file=password_file, cluster=cluster)
    async with broker as published:
        print("listening", flush=True)
        async for event in published:
            match event:
                case events.PrioritizeDecided(top=[best, *_], pod=pod):
                    print(f"{pod.namespace}/{pod.name} -> {best.node} {best.score:.1f}", flush=True)
                case answers.Notice(reason=reason):
                    print(reason, file=sys.stderr)


asyncio.run(main(*sys.argv[1:]))
