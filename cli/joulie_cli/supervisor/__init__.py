"""`joulie up`: child processes, the data directory, metrics of running parts.

Not here: commands (`commands`).
In: settings. Out: running parts, restarted when they exit.
"""
