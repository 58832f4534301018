"""What happens to a pod before the API server stores it: its scheduler, and its nodes by class.

Not here: the patch (`desired.pod_patch`), the class of a pod (`joulie_projections.pods`), decisions
about nodes (the extender).
In: reviews of the API server, annotations of namespaces. Out: JSON patches.
"""
