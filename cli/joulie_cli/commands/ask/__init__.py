"""Commands that answer questions about pods, nodes, plans, energy and what would be.

Not here: the answers (`joulie_cli.ask`).
In: a parser. Out: its options.
"""
