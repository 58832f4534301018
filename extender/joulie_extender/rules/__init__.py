"""The rules of the filter: each refuses a pod some nodes, with its words; one module for each.

No I/O, no clock.
Not here: the order of the rules (`catalogue`), the decision that records them (`decide`).
In: a pod, the rows of its candidates and the columns of the nodes. Out: a verdict for each
candidate.
"""
