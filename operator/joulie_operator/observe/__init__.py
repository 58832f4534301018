"""Watches Kubernetes objects and turns them into facts.

Not here: measured power (`telemetry`).
In: objects of the API server. Out: facts on the log, one per change.
"""
