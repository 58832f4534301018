"""Retention: cut points, requests for cuts, warnings before streams drop data.

Not here: writing the archive (`archive`), and deletion, which is the projector's.
In: a verified archive. Out: requests for cuts.
"""
