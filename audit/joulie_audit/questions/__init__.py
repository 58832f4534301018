"""Questions about the past: explain, list, travel in time, what-if.

Not here: options of commands (cli).
In: a history. Out: typed answers.
"""
