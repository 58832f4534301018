"""Verification: finds the first place where a log or an archive was tampered with; proofs.

Not here: recomputed decisions (`replay`).
In: a log, an archive, heads and keys. Out: a report.
"""
