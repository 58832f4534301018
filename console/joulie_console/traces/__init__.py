"""Traces: one for each pod, sent to an OpenTelemetry collector as its decisions are logged.

Not here: what a span holds (`views.pod_traces`).
In: the stream of decisions. Out: OTLP over HTTP, by the SDK of OpenTelemetry.
"""
