"""The work of the commands that maintain data, keys, broker and cluster, a module per command.

Not here: their options (`joulie_cli.commands.admin`).
In: parsed options and the wiring. Out: what was changed, and the exit code.
"""
