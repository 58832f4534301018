"""Rows of simulated suites as a table, or drawn as SVG.

Not here: the simulations.
In: rows. Out: text.
"""
