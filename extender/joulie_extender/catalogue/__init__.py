"""The order of the rules and of the terms, and the settings of a declaration, in one place.

No I/O, no clock.
Not here: the arithmetic of a rule (`rules`) or a term (`terms`).
In: one module for each rule and each term. Out: what `decide`, `explain`, the console and the
documentation iterate over.
"""
