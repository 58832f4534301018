"""The webhook: answers kube-scheduler from an in-memory view, and writes down why."""
