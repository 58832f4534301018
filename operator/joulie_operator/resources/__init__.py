"""Our custom resources and the parts of Kubernetes objects that we read and write, as types.

No I/O, no clock.
Not here: calls (`kube`), which objects there should be (`desired`).
In: JSON of the API server. Out: typed objects, definitions, RBAC rules.
"""
