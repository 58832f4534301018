"""Commands that answer questions about pods, nodes, plans, energy and what would be.

A module holds the summary of its command (the first line of its docstring), `options`, which adds
its options to a parser, and `program`. `joulie --help` reads the modules and imports none, and
completion imports them all: what a program needs is imported where it is used.

Not here: the answers (`joulie_answers`), their sources (`joulie_cli.asking`).
In: a parser; options and settings. Out: an exit code.
"""
