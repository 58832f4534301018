"""The energy experiment: the same jobs under several placement policies, and the completed work.

No I/O, no clock.
Not here: the demo's cluster (`engine`), files, clocks.
In: a suite's parameters and seeds. Out: rows with energy and work.
"""
