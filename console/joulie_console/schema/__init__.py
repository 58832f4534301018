"""Requests and responses of the console's API: one class each. Pure.

Not here: HTTP (`api`).
In: query parameters. Out: JSON documents.
"""
