"""Settings of the operator's edge: the cluster that it writes to, the building, the power meters.

Apart from the code that uses them, because that brings the Kubernetes client with it: half a second
and 40 MB that a simulated cluster does not need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from joulie_bus.events.kube_names import is_label
from joulie_bus.runtime.settings import boolean, number, setting, some_time, text
from joulie_operator.planning.rules import numbers
from joulie_projections.twin.totals import RACK_CAPACITY_W

WRITES_AT_ONCE = 16  # APPLY_RATE bounds the load; these hide the latency of the API server
WRITE_DEADLINE_S = 10.0  # one that takes longer is given up and tried again
STATUS_INTERVAL_S = 60.0  # of a NodeTwin whose numbers alone change, so that writes stay few
FACILITY = "facility"  # an operator polls one, so the events need no other name


class Racks(NamedTuple):
    default_w: float
    others_w: Mapping[str, float]


def racks(text: str) -> Racks:
    """watts, then rack=watts pairs of racks with another capacity, separated by commas"""
    first, _, rest = text.partition(",")
    watts = number(1, 1e9)
    return Racks(watts(first), {rack: watts(f"{w}") for rack, w in numbers(rest).items()})


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
    at_once: int = WRITES_AT_ONCE
    deadline_s: float = WRITE_DEADLINE_S
    status_s: float = STATUS_INTERVAL_S

    racks: Racks = setting(
        racks,
        "RACK_CAPACITY_WATTS",
        str(RACK_CAPACITY_W),
        "What the feed of a rack carries, and of racks where it carries something else",
    )


@dataclass(frozen=True, kw_only=True)
class FacilitySettings:
    enabled: bool = setting(
        boolean, "ENABLE_FACILITY_METRICS", "false", "Ask for the building's temperature and power"
    )
    name: str = FACILITY
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
    address: str = setting(
        text,
        "NODE_POWER_ADDRESS",
        "",
        "Who measures nodes: a Prometheus server that scrapes Kepler and DCGM; or, with {node} in "
        "it, a URL that answers with JSON for each node (nodePowerWatts, or packagePowerWatts at "
        "the top or under cpu); empty for nobody here (agents may)",
    )
    interval_s: float = setting(
        some_time, "NODE_POWER_INTERVAL", "15s", "How often the power of the nodes is read"
    )
    promql: str = setting(
        text,
        "NODE_POWER_PROMETHEUS_QUERY",
        "",
        "Watts of whole nodes: with {node} asked for each, else one series per node; "
        "empty reads Kepler and DCGM by the names of their metrics",
    )
