"""One function says what kind of workload a pod is, and which rule said so."""

from typing import Any

import msgspec
import pytest

from joulie_bus.events import WorkloadClass
from joulie_projections.classify import (
    Classified,
    classify,
    exemption,
    in_namespace,
    placement_of,
)
from joulie_projections.demand import ask_of
from joulie_projections.pod import Pod

LABEL = "joulie.io/power-profile"
Requirement = dict[str, Any]


def pod(
    *terms: list[Requirement],
    annotation: str | None = None,
    selector: str | None = None,
    **spec: object,
) -> Pod:
    """`terms` are the ORed terms of its required node affinity."""
    if terms:
        required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"nodeAffinity": {key: required}}
    if selector is not None:
        spec["nodeSelector"] = {LABEL: selector}
    annotations = {} if annotation is None else {"joulie.io/workload-class": annotation}
    return msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)


def profile(operator: str, *values: str) -> Requirement:
    return {"key": LABEL, "operator": operator, "values": list(values)}


def zone(operator: str = "In", *values: str) -> Requirement:
    return {"key": "topology.kubernetes.io/zone", "operator": operator, "values": list(values)}


NOT_ECO = profile("NotIn", "eco")
ONLY_ECO = profile("In", "eco")


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("performance", ("performance", "annotation")),
        ("standard", ("standard", "annotation")),
        ("  performance\n", ("performance", "annotation")),
        ("Performance", ("standard", "unknown-annotation")),
        ("best-effort", ("standard", "unknown-annotation")),
        ("", ("standard", "unknown-annotation")),
    ],
)
def test_the_annotation_is_trimmed_and_taken_in_its_exact_case(
    annotation: str, said: tuple[str, str]
) -> None:
    workload, _, rule = classify(pod(annotation=annotation))

    assert (workload, rule) == said


@pytest.mark.parametrize("annotation", ["standard", "no such class"])
def test_the_annotation_wins_over_constraints_and_namespace(annotation: str) -> None:
    found = classify(pod([NOT_ECO], annotation=annotation), "performance")

    assert (found.workload, found.placement) == ("standard", "performance-only")


@pytest.mark.parametrize(
    ("constrained", "placement"),
    [
        pytest.param(pod(), "general", id="no constraint"),
        pytest.param(pod(selector="performance"), "performance-only", id="selects performance"),
        pytest.param(pod(selector="eco"), "eco-only", id="selects eco"),
        pytest.param(pod([NOT_ECO]), "performance-only", id="NotIn eco"),
        pytest.param(pod([profile("NotIn", "x", "eco")]), "performance-only", id="NotIn with eco"),
        pytest.param(pod([profile("NotIn", "performance")]), "general", id="NotIn performance"),
        pytest.param(pod([profile("In", "performance")]), "performance-only", id="In performance"),
        pytest.param(pod([profile("In", "x")]), "performance-only", id="In something else"),
        pytest.param(pod([ONLY_ECO]), "eco-only", id="In eco"),
        pytest.param(pod([profile("In", "eco", "x")]), "eco-only", id="In eco and another"),
        pytest.param(pod([profile("In", "eco", "performance")]), "general", id="In both"),
        pytest.param(pod([profile("Exists")]), "general", id="Exists"),
        pytest.param(
            pod([profile("Exists"), profile("NotIn", "performance")]),
            "eco-only",
            id="Exists and not performance",
        ),
        pytest.param(pod([profile("DoesNotExist")]), "performance-only", id="DoesNotExist"),
        pytest.param(pod([zone("In", "a")]), "general", id="another key"),
        pytest.param(pod([NOT_ECO], [NOT_ECO]), "performance-only", id="every term excludes"),
        pytest.param(pod([NOT_ECO], [zone("In", "a")]), "general", id="a term without the key"),
        pytest.param(pod([NOT_ECO], [ONLY_ECO]), "general", id="terms are ORed"),
        pytest.param(pod([zone("In", "a"), NOT_ECO]), "performance-only", id="ANDed in a term"),
        pytest.param(pod([NOT_ECO], []), "performance-only", id="an empty term matches nothing"),
        pytest.param(pod([]), "performance-only", id="a single empty term matches nothing"),
        pytest.param(pod([profile("Gt", "5")]), "performance-only", id="Gt: eco is no number"),
        pytest.param(pod([profile("Lt", "5")]), "performance-only", id="Lt: eco is no number"),
        pytest.param(pod([profile("NotIn")]), "performance-only", id="NotIn without values"),
        pytest.param(pod([profile("Exists", "eco")]), "performance-only", id="Exists with values"),
        pytest.param(pod([profile("Is", "eco")], [ONLY_ECO]), "eco-only", id="no such operator"),
        pytest.param(
            pod([ONLY_ECO, zone("Near", "a")], [NOT_ECO]),
            "performance-only",
            id="one unreadable expression spoils its term",
        ),
        pytest.param(pod([profile("DoesNotExist")], [ONLY_ECO]), "general", id="unlabelled or eco"),
        pytest.param(
            pod([profile("In", "eco", "performance")], selector="eco"),
            "eco-only",
            id="selector ANDed with affinity",
        ),
        pytest.param(pod([zone("In", "a")], selector="performance"), "performance-only", id="AND"),
    ],
)
def test_placement_is_what_the_constraints_leave_open(constrained: Pod, placement: str) -> None:
    assert placement_of(constrained) == placement


def test_a_required_affinity_without_terms_matches_no_node() -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {key: {"nodeSelectorTerms": []}}}

    assert placement_of(pod(affinity=affinity)) == "performance-only"


@pytest.mark.parametrize(
    ("unlabelled", "namespace", "said"),
    [
        pytest.param(pod([NOT_ECO]), "standard", ("performance", "constraint"), id="excludes eco"),
        pytest.param(pod([ONLY_ECO]), "performance", ("standard", "constraint"), id="eco only"),
        pytest.param(pod(), "performance", ("performance", "namespace"), id="namespace"),
        pytest.param(pod(), " standard ", ("standard", "namespace"), id="namespace, trimmed"),
        pytest.param(pod(), "nonsense", ("standard", "default"), id="namespace, unknown"),
        pytest.param(pod(), None, ("standard", "default"), id="nothing said anywhere"),
    ],
)
def test_without_an_annotation_constraints_come_before_the_namespace(
    unlabelled: Pod, namespace: str | None, said: tuple[str, str]
) -> None:
    workload, _, rule = classify(unlabelled, namespace)

    assert (workload, rule) == said


@pytest.mark.parametrize("given", ["performance", "standard", None])
@pytest.mark.parametrize(
    "read",
    [pod(), pod(annotation="performance"), pod(annotation="no word"), pod(selector="eco")],
    ids=["silent", "annotated", "annotated with nonsense", "constrained"],
)
def test_a_namespace_that_is_known_later_makes_no_difference(
    read: Pod, given: WorkloadClass | None
) -> None:
    assert in_namespace(ask_of(read), given) == ask_of(read, given)


def with_metadata(**metadata: object) -> Pod:
    return msgspec.convert({"metadata": metadata}, Pod)


def owned(kind: str, *, controller: bool | None = True) -> Pod:
    return with_metadata(ownerReferences=[{"kind": kind, "controller": controller}])


def annotated(name: str, value: str) -> Pod:
    return with_metadata(annotations={name: value})


@pytest.mark.parametrize(
    ("special", "why"),
    [
        pytest.param(owned("DaemonSet"), "daemonset", id="run by a DaemonSet"),
        pytest.param(owned("DaemonSet", controller=None), "", id="a DaemonSet that runs it not"),
        pytest.param(owned("ReplicaSet"), "", id="run by a ReplicaSet"),
        pytest.param(annotated("kubernetes.io/config.mirror", "abc"), "mirror", id="mirror"),
        pytest.param(annotated("kubernetes.io/config.source", "file"), "mirror", id="static"),
        pytest.param(annotated("kubernetes.io/config.source", "api"), "", id="from the API"),
        pytest.param(pod(priorityClassName="system-node-critical"), "critical", id="node-critical"),
        pytest.param(
            pod(priorityClassName="system-cluster-critical"), "critical", id="cluster-critical"
        ),
        pytest.param(pod(priorityClassName="high"), "", id="a class of the users"),
        pytest.param(pod(priority=2_000_000_000), "critical", id="at the system's line"),
        pytest.param(pod(priority=1_999_999_999), "", id="just below it"),
        pytest.param(pod(), "", id="anybody"),
    ],
)
def test_the_system_s_own_pods_are_exempt_from_energy(special: Pod, why: str) -> None:
    assert exemption(special) == why


def test_what_go_writes_as_null_is_like_absent() -> None:
    nulls = msgspec.convert(
        {
            "metadata": {"annotations": None, "ownerReferences": None},
            "spec": {"nodeSelector": None, "affinity": {"nodeAffinity": None}, "priority": None},
            "status": None,
        },
        Pod,
    )

    assert classify(nulls) == Classified("standard", "general", "default")
    assert exemption(nulls) == ""
