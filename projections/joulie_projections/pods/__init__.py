"""Pods as Kubernetes describes them: workload class, effective request, GPU request.

No I/O, no clock.
Not here: the pods of the cluster as folded (`state`).
In: the fields of a Pod. Out: class, demand in integers.
"""
