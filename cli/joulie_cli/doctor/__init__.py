"""The checks of `joulie doctor`: what is observed, and a judgement of it with what to do.

Not here: the options of the command (`commands.upkeep.doctor`).
In: an API server, a broker, a database, metrics, files. Out: typed findings.
"""
