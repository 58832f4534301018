"""NATS JetStream: connection, publisher and reader. The only package that imports `nats`.

nats-py carries the connection; its `publish_async`, `fetch` and ordered consumers are not used,
because they lose or stall under faults (docs/decisions/0003).

Not here: what a message says (`events`), the server itself (`broker`).
In: records to publish. Out: records with their position, in the order of a stream.
"""

from joulie_bus.runtime.lean_import import without

with without("aiohttp"):  # 8 MiB, for websockets; `nats_internals` imports it when one is used
    import nats.aio.transport as _  # noqa: F401
