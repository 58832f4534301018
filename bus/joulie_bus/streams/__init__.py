"""Subjects, streams, records, and which role may publish what.

No I/O, no clock.
Not here: the log (`log`), NATS (`jetstream`), event types (`events`).
In: events, roles. Out: subjects, permissions, records with a position in their stream.
"""
