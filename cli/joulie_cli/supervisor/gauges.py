"""Reads gauges from the metrics of all running parts, concurrently."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

TIMEOUT_S = 1.0
Gauges = dict[str, float]


def gauges_of(addresses: Mapping[str, str]) -> dict[str, Gauges]:
    """Gauges by part; a part that does not answer in time is left out."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses)) as threads:
        found = zip(addresses, threads.map(_scrape, addresses.values()), strict=True)
        return {name: gauges for name, gauges in found if gauges is not None}


def _scrape(address: str) -> Gauges | None:
    """Samples without labels by name, and samples of streams as `name{STREAM}`."""
    try:
        with closing(HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        families = list(text_string_to_metric_families(text))
    except (OSError, HTTPException, ValueError):
        return None
    samples = [sample for family in families for sample in family.samples]
    return {_key(sample): sample.value for sample in samples if sample.labels.keys() <= {"stream"}}


def _key(sample: Sample) -> str:
    stream = sample.labels.get("stream")
    return sample.name if stream is None else f"{sample.name}{{{stream}}}"
