"""Plans the classes and caps of nodes, and nominates nodes for pods. Pure but `plugins`.

Not here: writes to the cluster (`apply`).
In: a snapshot, a policy, settings. Out: plan events, nominations.
"""
