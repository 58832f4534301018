"""Reports of a period: computed from the log, signed, and computed again to verify them.

Only where the data is. A report reads all facts of pods since the log began and simulates the
period, which takes minutes of a core for a large cluster, and it is signed by the key of the log:
a console has neither the time nor the key. It shows what the ledger keeps of the report of each
day (`saved`).

Not here: the ledger, the physics of the counterfactual, the command line.
In: the ledger, facts and decisions up to a position. Out: one document, as JSON or HTML.
"""
