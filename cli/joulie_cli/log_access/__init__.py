"""How commands reach the log: database, archive, kept heads; periodic archiving and trimming.

Not here: questions (the audit).
In: options. Out: an open history.
"""
