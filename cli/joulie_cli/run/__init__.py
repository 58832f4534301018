"""The work of the commands that run Joulie or one of its parts, a module per command.

Not here: their options (`joulie_cli.commands.run`).
In: parsed options and the wiring. Out: the exit code.
"""
