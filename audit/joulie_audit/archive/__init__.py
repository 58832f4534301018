"""The archive: hourly parts outside the broker and the database; write, index, read, restore.

Not here: what may be deleted (`retention`).
In: entries, manifests, facts. Out: files with proofs; a history over archive and database.
"""
