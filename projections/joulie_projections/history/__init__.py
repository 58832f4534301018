"""The past, read only: entries, commits, snapshots, archive index, free space.

Not here: the newest rows (`view`).
In: a database or an archive. Out: what was committed at a position.
"""
