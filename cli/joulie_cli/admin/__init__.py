"""Commands that change or prepare the data, the keys, the broker and the cluster.

A module holds the summary of its command (the first line of its docstring), `options`, which adds
its options to a parser, and `program`. `joulie --help` reads the modules and imports none, and
completion imports them all: what a program needs is imported where it is used.

Not here: the examination of `joulie doctor` (`joulie_answers.doctor`).
In: a parser; options and settings. Out: an exit code.
"""
