"""Rules that know neither events nor streams: pauses, heads of requests, texts without secrets.

No I/O, no clock.
Not here: sockets, files, the values of settings, logs (`runtime`).
In: bytes, texts, counts. Out: the same without a secret, a parsed head, a pause, the declaration
of a setting.
"""
