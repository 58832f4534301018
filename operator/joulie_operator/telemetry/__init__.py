"""Reads measured power of nodes and of the facility: Kepler, DCGM, Prometheus, HTTP, BMCs.

Not here: what readings say (`facts`), modelled power of nodes (projections).
In: samples of exporters. Out: telemetry facts.
"""
