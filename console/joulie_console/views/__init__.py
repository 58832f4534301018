"""Views: values of the API computed from a snapshot or the past.

Not here: pushing them to clients (`stream`).
In: snapshots, entries. Out: responses.
"""
