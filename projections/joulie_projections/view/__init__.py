"""The projection in memory of a reader: follows the projector's deltas, knows its own age.

Not here: who decides from it (extender, operator, console).
In: rows and deltas. Out: immutable snapshots.
"""
