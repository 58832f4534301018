"""The simulated kube-scheduler: calls the real extender over HTTP, publishes what watchers see.

Not here: scores.
In: pending pods. Out: bindings and facts.
"""
