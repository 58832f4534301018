"""Witnesses of the log: processes of others that cosign what extends what they saw (C2SP).

Not here: the form of checkpoints and proofs (`chain`), the tree of the log (`decision_log`).
In: checkpoints. Out: cosignatures, or the size of what was seen.
"""
