"""The energy experiment: the same jobs under several placement policies, with the work they did.

Belongs here: job streams, fleets and their power, policies under comparison, the simulation loop,
suites and their tables. Does not belong here: the demo's cluster (`engine`), files, clocks.
Comes in: a suite's parameters and seeds. Goes out: rows in which energy stands beside work.
"""
