"""The HTTP server of the extender: connections, limits, certificates, routes.

Not here: how a request is answered (`answering`).
In: requests of kube-scheduler. Out: replies.
"""
