"""The decision log entry by entry: hashes, links, signed heads, gaps, the start of a trimmed log.

Not here: verdicts (`verify`).
In: entries. Out: flaws at positions.
"""
