"""What objects, readings and documents of a grid say, as facts.

No I/O, no clock.
Not here: how they are fetched (`observe`, `telemetry`), who publishes them (`observe`).
In: typed objects, samples, documents. Out: events.
"""
