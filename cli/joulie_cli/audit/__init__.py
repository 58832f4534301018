"""The work of the commands that check the log, a module per command.

Not here: their options (`joulie_cli.commands.audit`); the checks themselves (the audit).
In: parsed options and the wiring. Out: text or data on stdout, and the exit code.
"""
