"""Reports of a period: computed from the log, signed, and computed again to verify them.

A report reads all facts of pods since the log began and simulates the period, which takes minutes
of a core for a large cluster. A command has no limit; for a console a process with limits computes
it (`served`). Only a process that may read the key of the log signs.

Not here: the ledger, the physics of the counterfactual, the command line.
In: the ledger, facts and decisions up to a position. Out: one document, as JSON or HTML.
"""
