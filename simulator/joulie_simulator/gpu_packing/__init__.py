"""The GPU packing experiment: how many cards become unusable under each placement.

No I/O, no clock.
Not here: energy (`energy`).
In: pods of a trace. Out: rows.
"""
