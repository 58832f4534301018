"""The database: engines, tables, transactions with one writer, retries.

Not here: the content of commits and entries (`fold`, `decision_log`).
In: commits. Out: durable rows and positions.
"""
