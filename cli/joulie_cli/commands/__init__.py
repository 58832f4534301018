"""The command line of each command, one module per command, in groups.

A module holds a summary (the first line of its docstring), `options`, which adds its options to a
parser, and `program`, which imports the module that does the work. `joulie --help` imports none
of the modules, and `joulie NAME --help` imports one; so they import nothing large by themselves.

Not here: the work of a command; what several command lines share (`joulie_cli.command_line`).
In: a parser. Out: its options.
"""
