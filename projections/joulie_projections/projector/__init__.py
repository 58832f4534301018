"""The running projector: merges the streams, folds, commits, publishes deltas, rebuilds and trims.

Not here: how a fact is folded (`fold`).
In: messages of the streams. Out: commits, and deltas for the readers.
"""
