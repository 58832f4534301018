"""Commands that change or prepare the data, the keys, the broker and the cluster.

Not here: the work (`joulie_cli.admin`).
In: a parser. Out: its options.
"""
