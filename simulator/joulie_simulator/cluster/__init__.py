"""The simulated cluster: jobs, free resources, kube-scheduler's arithmetic. Pure.

Not here: time (`engine`).
In: placements. Out: consistent allocations.
"""
