"""Plans: which nodes supply performance, which save, and under which caps. Pure but for `plugins`.

Not here: writes to the cluster (`apply`).
In: a snapshot, a policy, settings. Out: plan events.
"""
