"""The checks of `joulie doctor`: what is observed of an installation.

Not here: what is right or wrong (`judgement`), the options of the command.
In: an API server, a broker, a database, metrics, files. Out: typed findings.
"""
