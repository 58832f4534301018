"""Whether traces are sent: as OpenTelemetry's own variables say, which all its programs share."""

from collections.abc import Mapping

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Only with the address of a collector: OpenTelemetry's default is one on this machine."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return any(environ.get(name) for name in ENDPOINTS)
