"""The HTTP server of the extender: connections, limits, certificates, routes.

Not here: what an answer is (`verbs`, `decide`).
In: requests of kube-scheduler. Out: replies.
"""
