"""kube-scheduler's extender protocol: parses requests, encodes replies, looks up node names.

No I/O, no clock.
Not here: scores (`decide`).
In: bytes of a request. Out: typed arguments; bytes of a reply.
"""
