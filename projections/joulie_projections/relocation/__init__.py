"""Moves a log to another database, or continues it beside another broker.

Not here: copies in an archive.
In: the lease of the database. Out: the same log in its new place.
"""
