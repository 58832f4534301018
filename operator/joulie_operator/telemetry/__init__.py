"""Measured power and the facility: Kepler, DCGM, Prometheus, HTTP.

Not here: what a node draws by the model (projections).
In: samples of exporters. Out: telemetry facts in watts.
"""
