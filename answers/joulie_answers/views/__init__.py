"""Values of answers, computed from a snapshot or from entries of the log.

No I/O, no clock.
Not here: reading the past (`readers`).
In: snapshots, entries. Out: parts of answers.
"""
