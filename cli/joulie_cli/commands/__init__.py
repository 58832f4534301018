"""One module per command: `SETTINGS` says what it reads, `run` does it and returns the exit code.

They are imported when asked for: whoever wants `joulie status` does not wait for the operator.
"""
