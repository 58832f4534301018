"""The operator's settings of the cluster, the facility and the power meters.

They are separate from the code that uses them, which imports the Kubernetes client: half a second
and 40 MB that a simulated cluster does not need.
"""

from dataclasses import dataclass

from joulie_bus.events.kube_names import is_label
from joulie_bus.runtime.settings import (
    boolean,
    choice,
    integer,
    number,
    setting,
    some_time,
    text,
    token,
)
from joulie_operator.planning.rules import numbers
from joulie_projections.hardware.catalog import GPU_MODELS


def racks(text: str) -> str:
    """rack=watts pairs, separated by commas"""
    racks_of(text)
    return text


def racks_of(text: str) -> dict[str, float]:
    found = numbers(text)
    if any(watts <= 0 for watts in found.values()):
        raise ValueError("a rack without power")
    return found


def label_names(text: str) -> tuple[str, ...]:
    """names of labels, separated by commas"""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names or any(map(str.isspace, "".join(names))):
        raise ValueError("not a list of label names")
    return names


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
        "How to reach the cluster: a file, in-cluster for the service account, empty for none",
    )
    gpu_models: tuple[str, ...] = setting(
        label_names,
        "GPU_PRODUCT_LABEL_KEYS",
        ",".join(GPU_MODELS),
        "Node labels that name the GPU model; the first one with a value counts",
    )


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    namespace: str = setting(
        namespace, "POD_NAMESPACE", "default", "Namespace of the Lease that one operator holds"
    )
    duration_s: float = setting(
        some_time, "LEASE_DURATION", "15s", "After so long a silence another operator takes over"
    )


@dataclass(frozen=True, kw_only=True)
class ApplierSettings:
    rate: float = setting(
        number(0.1, 10_000), "APPLY_RATE", "100", "Most writes to the API server in a second"
    )
    at_once: int = setting(integer(1, 1000), "APPLY_CONCURRENCY", "16", "Most writes at once")
    deadline_s: float = setting(
        some_time, "APPLY_DEADLINE", "10s", "Longest time that one write may take"
    )
    status_s: float = setting(
        some_time,
        "TWIN_STATUS_INTERVAL",
        "1m",
        "How often a NodeTwin's status may follow numbers that merely breathe; of more than 600 "
        "nodes ten a second follow theirs, in turn",
    )
    tell_draining: bool = setting(
        boolean,
        "NODE_DRAINING_LABEL",
        "false",
        "Label nodes that drain with joulie.io/draining=true",
    )

    rack_w: float = setting(
        number(1, 1e9), "RACK_CAPACITY_WATTS", "50000", "What the feed of a rack carries"
    )
    racks: str = setting(
        racks, "RACK_CAPACITIES", "", "Racks whose feed carries something else, in watts"
    )


@dataclass(frozen=True, kw_only=True)
class FacilitySettings:
    enabled: bool = setting(
        boolean, "ENABLE_FACILITY_METRICS", "false", "Ask for the building's temperature and power"
    )
    name: str = setting(token, "FACILITY_NAME", "facility", "What the building is called")
    interval_s: float = setting(
        some_time, "FACILITY_POLL_INTERVAL", "30s", "How often the building is asked"
    )
    prometheus: str = setting(
        text,
        "FACILITY_PROMETHEUS_ADDRESS",
        "http://prometheus-operated.monitoring:9090",
        "The Prometheus server that knows",
    )
    http: str = setting(
        text,
        "FACILITY_HTTP_ENDPOINT",
        "",
        "Instead of Prometheus: an address that answers with one JSON object",
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
        "Watts of all machines",
    )
    cooling_power: str = setting(
        text,
        "FACILITY_COOLING_POWER_METRIC",
        "datacenter_cooling_power_watts",
        "Watts of cooling them",
    )


@dataclass(frozen=True, kw_only=True)
class PowerSettings:
    source: str = setting(
        choice("static", "prometheus", "http"),
        "NODE_POWER_SOURCE",
        "static",
        "Who measures nodes: nobody here (agents may), a Prometheus server, an HTTP endpoint",
    )
    interval_s: float = setting(
        some_time, "NODE_POWER_INTERVAL", "15s", "How often the power of the nodes is read"
    )
    prometheus: str = setting(
        text,
        "NODE_POWER_PROMETHEUS_ADDRESS",
        "http://prometheus-operated.monitoring:9090",
        "The Prometheus server that scrapes Kepler and DCGM",
    )
    promql: str = setting(
        text,
        "NODE_POWER_PROMETHEUS_QUERY",
        "",
        "Watts of whole nodes: with {node} asked for each, else one series per node; "
        "empty reads Kepler and DCGM by the names of their metrics",
    )
    http: str = setting(
        text,
        "NODE_POWER_HTTP_ENDPOINT",
        "http://localhost:18080/telemetry/{node}",
        "Answers with JSON: nodePowerWatts, or packagePowerWatts at the top or under cpu",
    )
