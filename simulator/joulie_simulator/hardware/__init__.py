"""Simulated hardware: shapes of nodes and the physics of their power. Pure.

Not here: placement.
In: load and caps. Out: watts and speed.
"""
