"""One module per command: `SETTINGS` lists the settings it reads, `run` returns the exit code.

A module is imported only when its command runs, so that `joulie status` does not load the operator.
"""
