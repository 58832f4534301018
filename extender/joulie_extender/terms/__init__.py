"""The terms of a score: each from columns of nodes to a column of values; one module for each.

No I/O, no clock.
Not here: the order of the terms and their sum (`catalogue`), the entry with them (`decide`).
In: a pod, the rows of its candidates and the columns of the nodes. Out: a value for each candidate,
and what it adds to the score.
"""
