"""Retention: cut points, deletion of what the archive holds, days left.

Not here: writing the archive (`archive`).
In: a verified archive. Out: purged streams and rows behind a cut.
"""
