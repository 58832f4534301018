"""The operator's settings of the cluster, the facility and the power meters.

They are separate from the code that uses them, which imports the Kubernetes client: half a second
and 40 MB that a simulated cluster does not need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from joulie_bus.core.kube_names import is_label, is_label_key
from joulie_bus.runtime.settings import boolean, number, setting, some_time, text
from joulie_operator.planning.resizes import MODES, Mode
from joulie_operator.planning.rules import numbers
from joulie_projections.hardware.catalog import GPU_MODELS
from joulie_projections.twin.totals import RACK_CAPACITY_W

WRITES_AT_ONCE = 16  # APPLY_RATE bounds the load; concurrency hides latency
WRITE_DEADLINE_S = 10.0  # a write that takes longer is aborted and retried
STATUS_INTERVAL_S = 60.0  # of NodeTwins of which only numbers change, so that writes stay few
IN_CLUSTER = "in-cluster"  # the kubeconfig of a pod: its service account
GRID_INTERVAL_S = 300.0  # the finest step of the ledger, and of providers
POD_EVENTS, POD_EVENTS_PCT = "pod-events", 2.0
FACILITY = "facility"  # an operator polls one facility, so events need no other name


class Racks(NamedTuple):
    default_w: float
    others_w: Mapping[str, float]


def racks(text: str) -> Racks:
    """watts, then rack=watts pairs of racks with another capacity, separated by commas"""
    first, _, rest = text.partition(",")
    watts = number(1, 1e9)
    return Racks(watts(first), {rack: watts(f"{w}") for rack, w in numbers(rest).items()})


class WriteRates(NamedTuple):
    per_s: float
    pod_events_pct: float


def write_rates(text: str) -> WriteRates:
    """writes per second from 0.1 to 10000, then pod-events=PERCENT from 0 to 100 after a comma"""
    first, _, rest = text.partition(",")
    others = numbers(rest)
    if unknown := others.keys() - {POD_EVENTS}:
        raise ValueError(f"there is no {min(unknown)}")
    percent = others.get(POD_EVENTS, POD_EVENTS_PCT)
    return WriteRates(number(0.1, 10_000)(first), number(0, 100)(f"{percent}"))


def namespace(name: str) -> str:
    """the name of a namespace"""
    if not is_label(name):
        raise ValueError("no namespace can have this name")
    return name


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    kubeconfig: str = setting(
        text,
        "KUBECONFIG",
        "",
        "Kubeconfig: a file; in-cluster for the service account; empty for no cluster",
    )


def label_keys(text: str) -> tuple[str, ...]:
    """names of labels, separated by commas"""
    keys = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not keys or not all(map(is_label_key, keys)):
        raise ValueError("not a list of label names")
    return keys


@dataclass(frozen=True, kw_only=True)
class GpuLabelSettings:
    keys: tuple[str, ...] = setting(
        label_keys,
        "GPU_PRODUCT_LABEL_KEYS",
        ",".join(GPU_MODELS[1:]),
        f"Labels with the GPU model of a node; the first that is set, after {GPU_MODELS[0]}",
    )

    @property
    def model_labels(self) -> tuple[str, ...]:
        return (GPU_MODELS[0], *self.keys)


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    namespace: str = setting(
        namespace, "POD_NAMESPACE", "default", "Namespace of the Lease that one operator holds"
    )
    duration_s: float = setting(
        some_time,
        "LEASE_DURATION",
        "15s",
        "Time without a renewal after which another operator takes over",
    )


@dataclass(frozen=True, kw_only=True)
class ApplierSettings:
    writes: WriteRates = setting(
        write_rates,
        "APPLY_RATE",
        "425",
        "Maximum number of writes to the API server per second; fewer while it answers slowly. "
        "Events on placed pods add at most this percentage of requests (2); 0 for none",
    )
    at_once: int = WRITES_AT_ONCE
    deadline_s: float = WRITE_DEADLINE_S
    status_s: float = STATUS_INTERVAL_S

    racks: Racks = setting(
        racks,
        "RACK_CAPACITY_WATTS",
        str(RACK_CAPACITY_W),
        "Power capacity of a rack in watts, and of racks that differ",
    )

    @property
    def rate(self) -> float:
        return self.writes.per_s

    @property
    def pod_events_share(self) -> float:
        return self.writes.pod_events_pct / 100


@dataclass(frozen=True, kw_only=True)
class FacilitySettings:
    enabled: bool = setting(
        boolean,
        "ENABLE_FACILITY_METRICS",
        "false",
        "Poll the temperature and the power of the facility",
    )
    name: str = FACILITY
    interval_s: float = setting(
        some_time, "FACILITY_POLL_INTERVAL", "30s", "How often the facility is polled"
    )
    prometheus: str = setting(
        text,
        "FACILITY_PROMETHEUS_ADDRESS",
        "http://prometheus-operated.monitoring:9090",
        "The Prometheus server with these metrics",
    )
    http: str = setting(
        text,
        "FACILITY_HTTP_ENDPOINT",
        "",
        "Instead of Prometheus: a URL that returns one JSON object",
    )
    ambient: str = setting(
        text,
        "FACILITY_AMBIENT_TEMP_METRIC",
        "datacenter_ambient_temperature_celsius",
        "Temperature in degrees Celsius: a PromQL query, or a path in the JSON",
    )
    it_power: str = setting(
        text,
        "FACILITY_IT_POWER_METRIC",
        "datacenter_total_it_power_watts",
        "IT power in watts",
    )
    cooling_power: str = setting(
        text,
        "FACILITY_COOLING_POWER_METRIC",
        "datacenter_cooling_power_watts",
        "Cooling power in watts",
    )


def requests_mode(text: str) -> Mode:
    """one of off, recommend, in-place"""
    modes: dict[str, Mode] = {mode: mode for mode in MODES}
    if text not in modes:
        raise ValueError("unknown")
    return modes[text]


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    mode: Mode = setting(
        requests_mode,
        "REQUESTS",
        "recommend",
        "What becomes of the requests of pods that consent by the label joulie.io/right-size: "
        "reasons in the log, or changes in place, by a right of its own",
    )


class GridSource(NamedTuple):
    """A document, and the zones of the nodes that it is about; no zones: those it names."""

    address: str
    zones: tuple[str, ...] = ()


def grid_sources(text: str) -> tuple[GridSource, ...]:
    """file paths and URLs, separated by spaces, each with zones= before it or without"""
    return tuple(map(_grid_source, text.split()))


def _grid_source(text: str) -> GridSource:
    zones, equals, address = text.partition("=")
    if not equals or any(mark in zones for mark in "/?:"):  # an "=" of the address itself
        return GridSource(text)
    names = tuple(zones.split(","))
    if not address or not all(names):
        raise ValueError("zones without an address, or an empty zone")
    return GridSource(address, names)


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    sources: tuple[GridSource, ...] = setting(
        grid_sources,
        "GRID_SOURCE",
        "",
        "Prices and carbon intensities of the grid: CSV or JSON files and URLs, also of "
        "Electricity Maps and WattTime, with a token@ or user:password@ in the URL; empty for none",
        secret=True,
    )
    interval_s: float = GRID_INTERVAL_S


@dataclass(frozen=True, kw_only=True)
class PowerSettings:
    address: str = setting(
        text,
        "NODE_POWER_ADDRESS",
        "",
        "Source of measured power: a Prometheus server that scrapes Kepler and DCGM; or a URL with "
        "{node} that returns JSON for each node (nodePowerWatts, or packagePowerWatts at the top "
        "or under cpu); empty for none (agents may measure)",
    )
    interval_s: float = setting(
        some_time, "NODE_POWER_INTERVAL", "15s", "How often the power of the nodes is read"
    )
    promql: str = setting(
        text,
        "NODE_POWER_PROMETHEUS_QUERY",
        "",
        "Power of whole nodes in watts: with {node}, one query per node; else one series per node; "
        "empty reads the metrics of Kepler and DCGM",
    )
    controllers: str = setting(
        text,
        "POWER_CONTROLLERS",
        "",
        "TOML file of power controllers (BMCs, commands, autoscalers), by which the power of nodes "
        "is read and nodes are switched; empty for none",
    )
