"""Commands that check the log.

Not here: the checks (`joulie_cli.audit`, the audit).
In: a parser. Out: its options.
"""
