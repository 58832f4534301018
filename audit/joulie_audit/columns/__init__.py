"""The typed tables of an archive: rows that any engine for Parquet reads.

Not here: files (`archive.columnar`), and the tables that keep messages byte for byte
(`archive.part_tables`).
In: the messages and entries of a part. Out: columns with types; readings as a ledger folds them.
"""
