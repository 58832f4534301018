"""The Kubernetes API: client, lease, object cache, our custom resources.

Not here: what is written and why (`apply`).
In: calls. Out: raw objects, typed resources.
"""
