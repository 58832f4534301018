"""How facts change the state: a function per event, one order, a manifest per commit.

No I/O, no clock.
Not here: transactions (`store`), the running projector (`projector`).
In: records of several streams. Out: changes, rows, a commit.
"""
