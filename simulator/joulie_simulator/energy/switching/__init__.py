"""What puts nodes to sleep and wakes them, beside the operator's plans, and under which conditions.

Not here: the operator's plans (`energy.product`), the loop (`energy.queueing`).
In: the fleet and the jobs that wait. Out: nodes switched, jobs evicted.
"""
