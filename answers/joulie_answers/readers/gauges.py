"""Reads gauges from the metrics of all running parts, concurrently."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from joulie_bus.runtime.http_deadline import within

TIMEOUT_S = 1.0  # without a byte
WHOLE_S = 5.0
LARGEST = 16 << 20  # 5,000 namespaces are 3 MiB
Gauges = dict[str, float]


def gauges_of(addresses: Mapping[str, str]) -> dict[str, Gauges]:
    """Gauges by part; a part that does not answer in time is left out."""
    if not addresses:
        return {}
    with ThreadPoolExecutor(len(addresses)) as threads:
        found = zip(addresses, threads.map(_scrape, addresses.values()), strict=True)
        return {name: gauges for name, gauges in found if gauges is not None}


def _scrape(address: str) -> Gauges | None:
    try:
        with closing(HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
            with within(connection, WHOLE_S):
                connection.request("GET", "/metrics")
                text = connection.getresponse().read(LARGEST + 1)
            return parsed(text.decode()) if len(text) <= LARGEST else None
    except (OSError, HTTPException, ValueError):
        return None


def parsed(text: str) -> Gauges:
    """Samples without labels by name, samples of streams as `name{STREAM}`, of copies of streams as
    `name{SERVER STREAM}`, and the sums of counters with other labels by name.
    """
    gauges: Gauges = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.keys() <= {"server", "stream"}:
                gauges[_key(sample)] = sample.value
            elif family.type == "counter":
                gauges[sample.name] = gauges.get(sample.name, 0) + sample.value
    return gauges


def _key(sample: Sample) -> str:
    labels = [value for _, value in sorted(sample.labels.items())]
    return f"{sample.name}{{{' '.join(labels)}}}" if labels else sample.name
