"""How commands print results, show progress, and parse times.

Not here: where the values come from.
In: values. Out: text.
"""
