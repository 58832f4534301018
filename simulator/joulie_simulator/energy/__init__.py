"""The energy experiment: the same jobs under several placement policies, with the work they did.

Not here: the demo's cluster (`engine`), files, clocks.
In: a suite's parameters and seeds. Out: rows that hold energy beside work.
"""
