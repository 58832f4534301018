"""The decision log: entries in a hash chain, signed heads, keys, outcomes.

Not here: verification of a written log (the audit).
In: decisions from the stream. Out: entries and heads in the database.
"""
