"""kube-scheduler's filters and scores over columns, one row per node: versions 1.34 to 1.37.

No I/O, no clock.
Not here: which nodes are sampled, the queue, preemption; what Joulie adds (`joulie_extender`).
In: nodes and pods as the API server has them. Out: nodes that pass, scores by plugin, and what of a
pod is not modelled.
"""
