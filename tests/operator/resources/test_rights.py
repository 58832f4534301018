"""The list of rights is that of the manifests."""

from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_operator.desired.objects import EXCLUDED, EXCLUSION_LABEL
from joulie_operator.desired.pending_writes import OUR_LABELS
from joulie_operator.facts.resizable_pods import OWN, RESIZED
from joulie_operator.power.executors import AWAKE_ANNOTATIONS
from joulie_operator.resources.rights import LEASE, OWN_NAMESPACE, RIGHTS, Right
from joulie_operator.settings import OperatorSettings

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = {
    "operator": "rbac.yaml",
    "extender": "rbac-extender.yaml",
    "evictions": "rbac-evictions.yaml",
    "requests": "rbac-requests.yaml",
    "callout": "rbac-callout.yaml",
}


def granted(file: str) -> Iterator[Right]:
    for tree in yaml.safe_load_all((DEPLOY / file).read_text()):
        for rule in (tree or {}).get("rules", []):
            yield from granted_by(rule, tree["metadata"].get("namespace", ""))


def granted_by(rule: dict[str, Any], namespace: str) -> Iterator[Right]:
    where = OWN_NAMESPACE if namespace == "joulie-system" else namespace
    for group in rule["apiGroups"]:
        for what in rule["resources"]:
            resource, _, part = what.partition("/")
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(verb, group, resource, part, where, name)


def policy(name: str) -> dict[str, Any]:
    trees = yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text())
    kind = "ValidatingAdmissionPolicy"
    [found] = [each for each in trees if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return dict(found["spec"])


def test_the_policy_of_nodes_names_what_the_operator_writes() -> None:
    variables = {each["name"]: each["expression"] for each in policy("joulie-nodes")["variables"]}

    exclusion = literal_eval(variables["exclusion"])
    assert exclusion == {EXCLUSION_LABEL: EXCLUDED}
    assert {*literal_eval(variables["ownLabels"]), *exclusion} == set(OUR_LABELS)
    assert set(literal_eval(variables["ownAnnotations"])) == set(AWAKE_ANNOTATIONS)
    selected = ",".join(f"{k}={v}" for k, v in literal_eval(variables["selector"]).items())
    assert selected == OperatorSettings().node_selector


def test_the_policy_of_pods_names_the_mark_that_the_operator_writes() -> None:
    variables = {
        each["name"]: each["expression"] for each in policy("joulie-nominations")["variables"]
    }

    assert literal_eval(variables["ownLabels"]) == [RESIZED]
    assert literal_eval(variables["ownAnnotations"]) == [OWN]


def test_the_policy_of_leases_names_the_lease_of_the_operator() -> None:
    [rule] = policy("joulie-lease")["validations"]

    assert rule["expression"] == f"object.metadata.name == '{LEASE}'"


@pytest.mark.parametrize("part", RIGHTS)
def test_the_rights_of_a_component_are_those_of_its_manifest(part: str) -> None:
    assert set(RIGHTS[part]) == set(granted(FILES[part]))


def test_a_right_reads_as_a_sentence_of_kubectl() -> None:
    assert str(Right("patch", "joulie.io", "nodetwins", "status")) == (
        "patch nodetwins/status.joulie.io"
    )
    assert str(Right("get", "", "pods", namespace="a")) == "get pods in a"
    assert str(Right("get", "", "pods", namespace="a", name="p")) == "get pods p in a"
