"""Folds recorded facts and computes decisions again, and compares the results.

No I/O, no clock.
Not here: where entries and facts are read (`replay`), hashes (`chain`).
In: records, entries. Out: mismatches, changes of scores.
"""
