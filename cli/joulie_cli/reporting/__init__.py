"""Reports of energy: of a period, computed from the log, signed, and computed again to verify it;
of each day, while the ledger runs; of two demos that are compared. And the moves that would make
free GPUs usable, computed from the state.

Not here: the command lines (`joulie_cli.ask`), the ledger, the physics of the counterfactual.
In: the ledger, facts and decisions up to a position. Out: one document, as JSON or HTML.
"""
