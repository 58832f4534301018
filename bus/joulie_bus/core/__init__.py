"""Rules that know neither events nor streams: pauses, heads of requests, texts without secrets.

No I/O, no clock.
Not here: sockets, files, settings, logs (`runtime`).
In: bytes, texts, counts. Out: the same without a secret, a parsed head, a pause.
"""
