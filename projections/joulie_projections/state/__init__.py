"""The state of the cluster as folded from the log: tables of nodes, pods, cards, producers.

No I/O, no clock.
Not here: how a fact changes it (`fold`).
In: rows. Out: rows and their digests.
"""
