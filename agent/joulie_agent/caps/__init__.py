"""The writer: sets the limits that a plan orders, and gives back what was there before.

In: orders of the operator for this node, and the limits as the hardware shows them.
Out: limits within the range of the hardware, read back; facts about what was applied and refused.
Not here: which node gets which cap (the operator plans that), and what is measured (`sampler`).

`rules` computes; `actuators` touch the hardware; `memory` keeps on disk what was there before.
"""
