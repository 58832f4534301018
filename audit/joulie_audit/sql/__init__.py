"""SQL over the log: the typed tables of an archive, what it lacks, and the ledger of energy.

Not here: the typed tables themselves (`columns`, `archive`), options of the command (cli).
In: an archive, a history with its facts, a query. Out: rows.
"""
