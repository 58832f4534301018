"""The log as a protocol, a log in memory, and what its writers share: envelopes, refusals.

Not here: NATS (`jetstream`), subjects and roles (`streams`).
In: events. Out: messages with an envelope; records in their order.
"""
