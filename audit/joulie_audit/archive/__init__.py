"""The archive: parts of one hour outside of broker and database, written, indexed, read, restored.

Not here: what may be deleted (`retention`).
In: entries, manifests, facts. Out: files with proofs; a history over archive and database.
"""
