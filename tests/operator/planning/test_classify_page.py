"""docs/classify-pods.md shows manifests and their result; the classifier computes the result."""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

from joulie_bus.events import Placement
from joulie_operator.facts.facts_from_objects import Namespace, class_of
from joulie_projections.pods.classify import classify, exemption
from joulie_projections.pods.kubernetes_pod import Pod

Manifest = dict[str, Any]

PAGE = (Path(__file__).parents[3] / "docs" / "classify-pods.md").read_text()
EXAMPLE = re.compile(r"```yaml\n(.*?)```\n\n\*\*Result:\*\* (.*?)\.\n", re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE)
RULES = {"annotation", "unknown-annotation", "constraint", "namespace", "default"}


def documents(text: str) -> dict[str, Manifest]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def pod_of(manifests: dict[str, Manifest]) -> Pod:
    """The pod of the manifest, or the one that a Deployment creates from its template."""
    if "Deployment" in manifests:
        return msgspec.convert(manifests["Deployment"]["spec"]["template"], Pod)
    return msgspec.convert(manifests["Pod"], Pod)


def namespace_class_of(manifests: dict[str, Manifest]) -> str | None:
    if "Namespace" not in manifests:
        return None
    return class_of(msgspec.convert(manifests["Namespace"], Namespace))


def result_of(text: str) -> str:
    manifests = documents(text)
    pod = pod_of(manifests)
    found = classify(pod, namespace_class_of(manifests))
    result = f"class `{found.workload}`, placement `{found.placement}`, rule `{found.rule}`"
    reason = exemption(pod)
    return f"{result}, exempt `{reason}`" if reason else result


def name_of(text: object) -> str:
    found = documents(str(text))
    return str((found.get("Deployment") or found["Pod"])["metadata"]["name"])


@pytest.mark.parametrize(
    ("manifest", "result"), EXAMPLES, ids=[name_of(text) for text, _ in EXAMPLES]
)
def test_a_manifest_on_the_page_gets_the_result_below_it(manifest: str, result: str) -> None:
    assert result_of(manifest) == result


def test_every_manifest_on_the_page_has_a_result() -> None:
    assert len(EXAMPLES) == PAGE.count("```yaml\n")


def test_the_page_shows_every_rule_placement_and_exemption() -> None:
    results = " ".join(result for _, result in EXAMPLES)

    assert set(re.findall(r"rule `([\w-]+)`", results)) == RULES
    assert set(re.findall(r"placement `([\w-]+)`", results)) == set(get_args(Placement))
    assert set(re.findall(r"exempt `(\w+)`", results)) == {"daemonset", "mirror", "critical"}
