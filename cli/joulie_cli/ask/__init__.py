"""The work of the commands that answer questions, a module per command.

Not here: their options (`joulie_cli.commands.ask`).
In: parsed options and the wiring. Out: text or data on stdout, and the exit code.
"""
