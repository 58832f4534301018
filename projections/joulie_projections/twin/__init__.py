"""The digital twin: power, cooling and totals of each node, and all twins as columns.

No I/O, no clock.
Not here: scores (the extender), plans (the operator).
In: the state of nodes. Out: twins, one row per node.
"""
