"""The embedded nats-server: its process, its permissions and the checksum of its program.

Not here: clients of a broker (`jetstream`).
In: a data directory. Out: a running broker on loopback.
"""
