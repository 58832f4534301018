"""Verify: names the first place where a log or an archive is not what was written; proofs.

Not here: recomputed decisions (`replay`).
In: a log, an archive, heads and keys. Out: a report.
"""
