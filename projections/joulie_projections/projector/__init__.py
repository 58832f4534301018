"""The running projector: merges the streams, folds, commits, announces; rebuilds; quarantine.

Not here: how a fact is folded (`fold`).
In: messages of the streams. Out: commits, and deltas for the readers.
"""
