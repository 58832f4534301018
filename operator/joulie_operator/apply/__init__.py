"""Writes plans to the cluster: NodeTwins, node labels, GPU status, nominations, events.

Not here: what is to be written (`desired`), the API client (`kube`).
In: differences. Out: the writes that remove them, and no others.
"""
