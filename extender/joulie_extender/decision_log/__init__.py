"""The spool: decisions are on disk before the reply, and at the broker soon after.

Not here: the log in the database (projections).
In: encoded decisions. Out: messages of the decision stream.
"""
