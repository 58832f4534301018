"""The database: engines, tables, transactions with one writer, retries.

Not here: what is written (`fold`, `decision_log`).
In: commits. Out: rows and positions, durable.
"""
