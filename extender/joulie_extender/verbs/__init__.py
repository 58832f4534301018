"""The verbs of kube-scheduler: how each is parsed, answered and described.

No I/O, no clock.
Not here: connections (`http`), scores (`decide`), cards (`gpu`).
In: a body and a snapshot. Out: a reply, and the decision that explains it.
"""
