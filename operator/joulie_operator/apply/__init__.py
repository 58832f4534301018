"""Writes plans to the cluster: NodeTwins, labels, GPU status, Kubernetes events.

Not here: the API client (`kube`).
In: the view. Out: as few writes as make the cluster equal to it.
"""
