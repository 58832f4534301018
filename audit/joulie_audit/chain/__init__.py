"""The hash chain of the decision log: entries, signed heads, trimmed starts.

Not here: verdicts (`verify`).
In: entries. Out: flaws at positions.
"""
