"""The simulated cluster: jobs, free resources, kube-scheduler's arithmetic.

No I/O, no clock.
Not here: time (`engine`).
In: placements. Out: consistent allocations.
"""
