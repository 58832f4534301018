"""How commands and components reach the log: database, archive, broker, kept heads, witnesses.

Not here: what is asked of the log (`questions`, `verify`, `ledger`).
In: settings and options. Out: an open history with its facts.
"""
