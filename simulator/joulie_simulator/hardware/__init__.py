"""Simulated hardware: shapes of nodes and the physics of their power.

No I/O, no clock.
Not here: placement.
In: load and caps. Out: watts and speed.
"""
