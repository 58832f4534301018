"""Switches nodes off and on as plans order: the executors and the loop. Evicts pods
of nodes that a plan empties.

Not here: which nodes sleep (`planning`), and the cordon and label of a node (`apply`).
In: the power states of the view. Out: orders to power controllers, each after a check.
"""
