"""kube-scheduler's extender protocol: parses requests, encodes replies, looks up node names. Pure.

Not here: scores (`decide`).
In: bytes of a request. Out: typed arguments; bytes of a reply.
"""
