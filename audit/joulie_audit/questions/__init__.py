"""Queries over the log: explain, list, what-if.

Not here: options of commands (cli).
In: a history. Out: typed answers.
"""
