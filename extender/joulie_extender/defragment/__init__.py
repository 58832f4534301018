"""Which pods to move so that free GPUs are of use to the pods that ask for GPUs.

No I/O, no clock. In: the state and its columns, what a reader of the API server adds. Out: moves in
their order, each with its reason, and the pods that stay. Not here: the cost by which placements
are scored (`gpu`).
"""
