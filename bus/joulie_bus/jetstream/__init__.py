"""NATS JetStream, behind our own publisher and reader. The only package that imports `nats`.

nats-py carries the connection; its `publish_async`, `fetch` and ordered consumers are not used,
because they lose or stall under faults (docs/decisions/0003).
"""
