"""Views: values of the API computed from a snapshot or the past.

No I/O, no clock.
Not here: reading the past (`readers`), pushing them to clients (`stream`).
In: snapshots, entries. Out: responses.
"""
