"""Follows the log and keeps the ledger of energy.

Not here: the fold and its tables (`joulie_projections.energy`).
In: a history, its facts, a writable database. Out: intervals of energy, committed with their state.
"""
