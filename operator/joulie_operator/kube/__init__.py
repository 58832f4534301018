"""The Kubernetes API: client, lease, object cache, our custom resources.

Not here: what is written (`apply`), what becomes a fact (`observe`).
In: calls. Out: raw objects, typed resources.
"""
