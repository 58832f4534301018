"""The decision log as it is written: its rows, its signed heads, the files of its keys.

Not here: entries and heads as values (`chain`), verification of a written log (the audit).
In: decisions from the stream. Out: entries and heads in the database.
"""
