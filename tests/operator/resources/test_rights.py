"""The list of rights is that of the manifests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_operator.resources.rights import OWN_NAMESPACE, RIGHTS, Right

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = {
    "operator": "rbac.yaml",
    "extender": "rbac-extender.yaml",
    "evictions": "rbac-evictions.yaml",
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
                yield Right(verb, group, resource, part, where)


@pytest.mark.parametrize("part", RIGHTS)
def test_the_rights_of_a_component_are_those_of_its_manifest(part: str) -> None:
    assert set(RIGHTS[part]) == set(granted(FILES[part]))


def test_a_right_reads_as_a_sentence_of_kubectl() -> None:
    assert str(Right("patch", "joulie.io", "nodetwins", "status")) == (
        "patch nodetwins/status.joulie.io"
    )
    assert str(Right("get", "", "pods", namespace="a")) == "get pods in a"
