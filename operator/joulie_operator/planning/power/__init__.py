"""What power targets can take from nodes: whose limits may be set, what caps save, who gets what.

In: the state of nodes, and a target. Out: levels of caps, and the shares of racks.
Not here: which nodes are eco, and what a plan does to each node.
"""
