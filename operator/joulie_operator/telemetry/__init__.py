"""Reads measured power of nodes and of the facility: Kepler, DCGM, Prometheus, HTTP.

Not here: what readings say (`facts`), modelled power of nodes (projections).
In: samples of exporters. Out: telemetry facts.
"""
