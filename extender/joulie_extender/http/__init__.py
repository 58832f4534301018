"""What the extender answers under which path.

Not here: the server (`joulie_bus.http`), how a request is answered (`answering`).
In: requests of kube-scheduler. Out: replies.
"""
