"""Which pod of the chart may connect where, by its NetworkPolicies, which this file evaluates."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, DOCUMENTED, of_kind, pod_specs, rendered

pytestmark = pytest.mark.slow
COMPONENT = "app.kubernetes.io/component"
BROKER, API, DATABASE, DNS = 4222, 443, 5432, 53
Tree = dict[str, Any]


class Pod(NamedTuple):
    labels: dict[str, str]
    spec: Tree

    def has(self, name: str) -> bool:
        return any(
            each["name"] == name
            for container in self.spec["containers"]
            for each in container.get("env", [])
        )


def pods_of(trees: list[Tree]) -> dict[str, Pod]:
    found = {}
    for tree in trees:
        template = tree if tree["kind"] == "Pod" else tree.get("spec", {}).get("template") or {}
        if "spec" in template:
            labels = template["metadata"]["labels"]
            found[labels[COMPONENT]] = Pod(labels, template["spec"])
    return found


def selects(selector: Tree, labels: dict[str, str]) -> bool:
    return all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    ) and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


def may_connect(trees: list[Tree], source: Pod, to: Pod | None, port: int) -> bool:
    """Whether the egress of one pod is allowed; without `to` to an address outside of the chart."""
    rules = [
        rule
        for policy in of_kind(trees, "NetworkPolicy").values()
        if "Egress" in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], source.labels)
        for rule in policy["spec"]["egress"]
    ]
    return any(
        ("ports" not in rule or port in [each["port"] for each in rule["ports"]])
        and (
            "to" not in rule
            or (
                to is not None
                and any(selects(each["podSelector"], to.labels) for each in rule["to"])
            )
        )
        for rule in rules
    )


@pytest.fixture(scope="module", params=DOCUMENTED)
def trees(request: pytest.FixtureRequest, home: Path) -> list[Tree]:
    return rendered(home, "-f", str(CHART / f"{request.param}.yaml"))


def test_every_pod_reaches_what_its_environment_names(trees: list[Tree]) -> None:
    pods = pods_of(trees)
    assert len(pods) == len({*pods})

    for name, pod in pods.items():
        assert may_connect(trees, pod, None, DNS), name
        assert may_connect(trees, pod, pods.get("nats"), BROKER) == pod.has("NATS_URL"), name
        assert may_connect(trees, pod, None, DATABASE) == pod.has("DATABASE_URL_FILE"), name
        has_token = pod.spec.get("automountServiceAccountToken", True)
        assert may_connect(trees, pod, None, API) == has_token, name


def test_only_the_test_of_the_chart_reads_metrics_of_other_pods(trees: list[Tree]) -> None:
    """In a pod `joulie doctor` reads them without the proxy of the API server."""
    pods = pods_of(trees)

    reading = {
        name for name, pod in pods.items() if may_connect(trees, pod, pods["projector"], 9877)
    }
    assert reading == {"test"}


def test_no_pod_but_the_operator_with_meters_reaches_any_other_address(home: Path) -> None:
    plain = rendered(home)
    metered = rendered(home, "--set-string", "settings.NODE_POWER_ADDRESS=http://prometheus:9090")
    rules = ["--set-json", 'networkPolicy.metersTo=[{"ports":[{"port":9090}]}]']
    narrow = rendered(home, *rules)

    assert reach(plain, 8080) == set()
    assert reach(metered, 8080) == {"operator"}
    assert reach(narrow, 9090) == {"operator"}
    assert reach(narrow, 8080) == set()


def reach(trees: list[Tree], port: int) -> set[str]:
    return {name for name, pod in pods_of(trees).items() if may_connect(trees, pod, None, port)}


def test_the_ports_of_a_broker_of_yours_are_those_of_its_addresses(home: Path) -> None:
    words = ["--set", "nats.usersSecret=u", "--set", r"nats.url=tls://a:4333\,tls://b"]

    trees = rendered(home, *words)

    assert reach(trees, 4333) == reach(trees, BROKER) >= {"projector", "extender"}


def test_a_switch_leaves_the_policies_out(home: Path) -> None:
    assert not of_kind(rendered(home, "--set", "networkPolicy.enabled=false"), "NetworkPolicy")


def test_nothing_outside_of_its_pod_reads_the_monitoring_of_the_broker(home: Path) -> None:
    trees = rendered(home)
    conf = of_kind(trees, "ConfigMap")["joulie-nats"]["data"]["nats.conf"]
    [container] = pod_specs(trees)["StatefulSet/joulie-nats"]["containers"]
    [monitoring] = [line for line in conf.splitlines() if line.startswith("http")]

    assert monitoring.startswith('http: "127.0.0.1:8222"')
    assert {each["containerPort"] for each in container["ports"]} == {4222, 6222}
    assert yaml.safe_dump(container).count("exec:") == 3


def test_the_projector_alone_reaches_the_ports_of_the_witnesses(home: Path) -> None:
    witnesses = "{a+1+K@https://a:9880,b+1+K@https://b.example/log,c+1+K@https://10.0.0.1:8443}"
    found = pods_of(rendered(home, "--set", f"witnesses={witnesses}"))
    trees = rendered(home, "--set", f"witnesses={witnesses}")

    reached = {
        name: {port for port in (9880, 443, 8443) if may_connect(trees, pod, None, port)}
        for name, pod in found.items()
    }
    assert reached["projector"] == {9880, 443, 8443}
    assert not reached["console"]
    assert not reached["extender"]


def test_only_the_component_that_keeps_something_in_a_place_reaches_it(home: Path) -> None:
    s3 = "headsTo.s3.url=https://s3.example.com:9000/heads,headsTo.s3.existingSecret=keys"

    assert reach(rendered(home, "--set", s3), 9000) == {"projector"}
    bucket = s3.replace("headsTo.s3", "archive.bucket")
    assert reach(rendered(home, "--set", bucket), 9000) == {"archive"}
    with_map = reach(rendered(home, "--set", "headsTo.configMap=true"), API)
    assert with_map - reach(rendered(home), API) == {"projector"}


def test_an_ingress_of_the_console_is_always_encrypted(home: Path) -> None:
    at = {"enabled": "true", "host": "joulie.example.com", "ingressClassName": "nginx"}
    options = [f"--set=console.ingress.{name}={value}" for name, value in at.items()]

    assert of_kind(rendered(home), "Ingress") == {}
    for secret, expected in (("", {}), ("page-tls", {"secretName": "page-tls"})):
        trees = rendered(home, *options, f"--set=console.ingress.tlsSecret={secret}")
        spec = of_kind(trees, "Ingress")["joulie-console"]["spec"]
        [path] = spec["rules"][0]["http"]["paths"]

        assert spec["ingressClassName"] == "nginx"
        assert spec["tls"] == [{"hosts": ["joulie.example.com"], **expected}]
        assert spec["rules"][0]["host"] == "joulie.example.com"
        assert path["backend"]["service"]["name"] in of_kind(trees, "Service")
