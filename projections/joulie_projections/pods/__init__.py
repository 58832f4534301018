"""Pods as Kubernetes describes them: workload class, effective request, GPU request. Pure.

Not here: the pods of the cluster as folded (`state`).
In: the fields of a Pod. Out: class, demand in integers.
"""
