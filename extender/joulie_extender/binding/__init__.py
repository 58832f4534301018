"""Bind: claims cards by compare-and-set, creates the Binding, reconciles claims.

Not here: which cards (`gpu`).
In: a pod and its node. Out: a claim in the log, a Binding in the API server.
"""
