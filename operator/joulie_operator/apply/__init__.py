"""Writes plans to the cluster: NodeTwins, node labels, GPU status, nominations, events.

Not here: the API client (`kube`).
In: the view. Out: the writes that make the cluster equal to it, and no others.
"""
