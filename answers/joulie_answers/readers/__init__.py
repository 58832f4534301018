"""Reads for the answers: the database, the ledger, the past; off the event loop, with bounds.

Not here: how the values look (`views`).
In: queries. Out: entries, reports, states at a position.
"""
