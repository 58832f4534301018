"""Replay: folds the recorded facts again and recomputes every decision and plan.

Not here: hashes (`chain`).
In: facts and entries. Out: mismatches.
"""
