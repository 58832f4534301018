"""The decision log as values: entries and their hashes, heads, keys, outcomes, sequence numbers.

No I/O, no clock.
Not here: rows and key files (`decision_log`), verdicts (the audit).
In: decisions, heads, signatures. Out: entries, their digests, what is wrong with them.
"""
