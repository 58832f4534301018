"""Retention: cut points, deletion of archived data, warnings before streams drop data.

Not here: writing the archive (`archive`).
In: a verified archive. Out: purged streams and rows behind a cut.
"""
