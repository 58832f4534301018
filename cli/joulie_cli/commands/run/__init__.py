"""Commands that run Joulie or one of its parts until they are stopped.

Not here: the work (`joulie_cli.run`).
In: a parser. Out: its options.
"""
