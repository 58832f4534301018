"""Plans the classes and caps of nodes, and nominates nodes for pods.

No I/O, no clock.
Not here: writes to the cluster (`apply`).
In: a snapshot, a policy, settings. Out: plan events, nominations.
"""
