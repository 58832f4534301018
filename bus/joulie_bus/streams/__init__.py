"""Subjects, streams, the log protocol, and which role may publish what.

Not here: NATS (`jetstream`), event types (`events`).
In: events with an envelope. Out: records with a position in their stream.
"""
