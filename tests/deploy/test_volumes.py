"""The claims of the chart, for which clusters without a class of storage need volumes."""

from pathlib import Path

import pytest

from helm_chart import CHART, Tree, rendered
from node_objects import claims

pytestmark = pytest.mark.slow


def claimed(trees: list[Tree]) -> dict[str, str]:
    """The claims by name, those of each replica as well, with their sizes."""
    found: dict[str, str] = {}
    for tree in trees:
        if tree["kind"] == "PersistentVolumeClaim":
            found[tree["metadata"]["name"]] = size(tree)
        for each in tree["spec"].get("volumeClaimTemplates", ()) if "spec" in tree else ():
            for number in range(tree["spec"]["replicas"]):
                name = f"{each['metadata']['name']}-{tree['metadata']['name']}-{number}"
                found[name] = size(each)
    return found


def size(claim: Tree) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def test_the_drills_have_a_volume_for_each_claim(home: Path) -> None:
    more = claims(projectors=2, brokers=3, extenders=3)

    assert claimed(rendered(home)) == claims()
    assert claimed(rendered(home, "-f", str(CHART / "values-ha.yaml"))).items() <= more.items()
