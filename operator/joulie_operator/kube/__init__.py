"""The Kubernetes API: client, lease, object cache.

Not here: types of objects (`resources`), what is written (`apply`), what becomes a fact (`facts`).
In: calls. Out: raw objects, typed resources.
"""
