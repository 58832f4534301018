"""What commands print and parse: live screen, placements, times, common options.

Not here: where the values come from.
In: values. Out: text.
"""
