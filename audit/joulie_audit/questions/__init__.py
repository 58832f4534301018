"""Queries over the log: explain, list, time travel, what-if.

Not here: options of commands (cli).
In: a history. Out: typed answers.
"""
