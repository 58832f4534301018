"""Watches: Kubernetes objects become facts.

Not here: measured power (`telemetry`).
In: objects of the API server. Out: facts on the log, only when something changed.
"""
