"""Requests and responses of the console's API: one class each.

No I/O, no clock.
Not here: HTTP (`api`).
In: query parameters. Out: JSON documents.
"""
