"""The in-memory projection of a reader: follows the projector's deltas and reports its age.

Not here: decisions made from it (extender, operator, console).
In: rows and deltas. Out: immutable snapshots.
"""
