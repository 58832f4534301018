"""Watches Kubernetes objects and publishes what changed.

Not here: which facts they are (`facts`), measured power (`telemetry`).
In: objects of the API server. Out: facts on the log, one per change.
"""
