"""Replay: reads recorded facts, decisions and plans, and has them computed again.

Not here: the computation (`recompute`), hashes (`chain`).
In: facts and entries. Out: mismatches.
"""
