"""What each component starts with: settings, data directory, connection, and how it ends.

Not here: the components themselves, the options of their commands.
In: the environment, a file of settings. Out: a process that runs until a signal.
"""
