"""Plans which nodes are performance nodes, which are eco nodes, and their caps. Pure but `plugins`.

Not here: writes to the cluster (`apply`).
In: a snapshot, a policy, settings. Out: plan events.
"""
