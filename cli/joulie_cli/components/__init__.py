"""The components as processes: their settings, what they are connected to, and how they begin.

Not here: the components themselves, the options of their commands (`joulie_cli.run`).
In: options and settings. Out: a process that runs until it is stopped.
"""
