"""One function says what kind of workload a pod is, and which rule said so."""

from typing import Any

import msgspec
import pytest

from joulie_bus.events import WorkloadClass
from joulie_projections.pods.classify import (
    Classification,
    classify,
    exemption,
    placement_of,
    with_namespace_class,
)
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod

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
    affinity: dict[str, Any] = {"nodeAffinity": {key: {"nodeSelectorTerms": []}}}

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
    assert with_namespace_class(ask_of(read), given) == ask_of(read, given)


Meta = dict[str, object]


def pinned(*nodes: str, **more: object) -> dict[str, object]:
    """Required affinity as the DaemonSet controller writes it: one term, one field, one node."""
    field = {"key": "metadata.name", "operator": "In", "values": list(nodes)}
    return required({"matchFields": [field], **more})


def required(*terms: dict[str, object]) -> dict[str, object]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def owned(kind: str, api: str = "apps/v1", name: str = "o", *, controller: bool = True) -> Meta:
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": "1", "controller": controller}
    return {"ownerReferences": [owner]}


def mirrored(node: str = "n1", note: str = "kubernetes.io/config.mirror") -> Meta:
    return {"annotations": {note: "9f"}, **owned("Node", "v1", node)}


def made(metadata: Meta | None = None, **spec: object) -> Pod:
    return msgspec.convert({"metadata": metadata or {}, "spec": spec}, Pod)


FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


@pytest.mark.parametrize(
    ("special", "why"),
    [
        (made(owned("DaemonSet"), affinity=pinned("n1")), "daemonset"),
        (made(mirrored(), nodeName="n1"), "mirror"),
        (
            made(priorityClassName="system-node-critical", priority=2_000_001_000),
            "critical",
        ),
        (
            made(priorityClassName="system-cluster-critical", priority=2_000_000_000),
            "critical",
        ),
    ],
    ids=["of a DaemonSet", "mirror", "node-critical", "cluster-critical"],
)
def test_the_system_s_own_pods_are_exempt_from_energy(special: Pod, why: str) -> None:
    assert exemption(special) == why


DAEMON = owned("DaemonSet")
FORGED = {
    "an owner alone": made(DAEMON),
    "an affinity alone": made(affinity=pinned("n1")),
    "an owner that does not control it": made(
        owned("DaemonSet", controller=False), affinity=pinned("n1")
    ),
    "a kind of another group": made(owned("DaemonSet", "evil.io/v1"), affinity=pinned("n1")),
    "no group": made(owned("DaemonSet", "v1"), affinity=pinned("n1")),
    "several nodes": made(DAEMON, affinity=pinned("n1", "n2")),
    "alternatives": made(
        DAEMON, affinity=required({"matchFields": [FIELD]}, {"matchFields": [FIELD]})
    ),
    "a label beside it": made(
        DAEMON, affinity=pinned("n1", matchExpressions=[{"key": "a", "operator": "Exists"}])
    ),
    "all but one": made(
        DAEMON, affinity=required({"matchFields": [{**FIELD, "operator": "NotIn"}]})
    ),
    "another field": made(DAEMON, affinity=required({"matchFields": [{**FIELD, "key": "a"}]})),
    "preferred only": made(
        DAEMON,
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchFields": [FIELD]}}
                ]
            }
        },
    ),
    "run by a ReplicaSet": made(owned("ReplicaSet"), affinity=pinned("n1")),
    "a source": made({"annotations": {"kubernetes.io/config.source": "file"}}),
    "a source on a node": made(mirrored(note="kubernetes.io/config.source"), nodeName="n1"),
    "a mirror that waits": made(mirrored()),
    "a mirror with an empty node": made(mirrored(""), nodeName=""),
    "a mirror elsewhere": made(mirrored("n2"), nodeName="n1"),
    "a mirror without an owner": made(
        {"annotations": {"kubernetes.io/config.mirror": "9f"}}, nodeName="n1"
    ),
    "an owner without a mirror": made(owned("Node", "v1", "n1"), nodeName="n1"),
    "a class by name alone": made(priorityClassName="system-node-critical"),
    "a class with a user's value": made(
        priorityClassName="system-node-critical", priority=1_000_000_000
    ),
    "just below the line": made(priorityClassName="system-node-critical", priority=1_999_999_999),
    "a value alone": made(priority=2_000_000_000),
    "a class of the users": made(priorityClassName="high", priority=2_000_000_000),
    "labels": made({"labels": {"tier": "system-node-critical", "k8s-app": "DaemonSet"}}),
    "an ordinary pod": made(),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_a_tenant_can_write_exempts_no_pod(forged: str) -> None:
    assert exemption(FORGED[forged]) == ""


def test_what_go_writes_as_null_is_like_absent() -> None:
    nulls = msgspec.convert(
        {
            "metadata": {"annotations": None, "ownerReferences": None},
            "spec": {"nodeSelector": None, "affinity": {"nodeAffinity": None}, "priority": None},
            "status": None,
        },
        Pod,
    )

    assert classify(nulls) == Classification("standard", "general", "default")
    assert exemption(nulls) == ""
