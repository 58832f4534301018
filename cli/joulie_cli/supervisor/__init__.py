"""`joulie up`: child processes, and what is checked before they start.

Not here: commands (`commands`).
In: settings. Out: running parts, restarted when they exit.
"""
