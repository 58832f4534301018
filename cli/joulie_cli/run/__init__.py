"""Commands that run Joulie, or one of its components, until they are stopped.

A module holds the summary of its command (the first line of its docstring), `options`, which adds
its options to a parser, and `program`. `joulie --help` reads the modules and imports none, and
completion imports them all: what a program needs is imported where it is used.

Not here: the components (`component` in their own packages).
In: a parser; options and settings. Out: an exit code.
"""
