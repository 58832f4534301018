"""The history, read-only: entries, commits, snapshots, archive index; and free space.

Not here: the newest rows (`view`).
In: a database or an archive. Out: the state that was committed at a position.
"""
