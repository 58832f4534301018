"""deploy/crds matches the types, and an API server with these definitions accepts our objects."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml as pyyaml  # type: ignore[import-untyped]

from joulie_operator.resources.crds import DEFINITIONS, Definition, definition, yaml
from joulie_operator.resources.custom_resources import read_twin
from kube_builders import card, joulie_server, node_hardware
from kube_fields import Refused

FOLDER = Path(__file__).parents[3] / "deploy/crds"
README = FOLDER.parents[1] / "README.md"
TWIN: dict[str, Any] = {"metadata": {"name": "n1"}, "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_the_committed_file_matches_the_types(of: Definition) -> None:
    assert (FOLDER / of.file).read_text() == yaml(definition(of))


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_the_text_is_valid_yaml(of: Definition) -> None:
    assert pyyaml.safe_load(yaml(definition(of))) == definition(of)


def test_no_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {of.file for of in DEFINITIONS}


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_a_schema_is_structural_and_every_column_is_a_field(of: Definition) -> None:
    [version] = definition(of)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]

    for schema in every_schema(root):
        assert schema["type"] != "object" or "properties" in schema or schema is not root
        assert "$ref" not in schema
    for column in version["additionalPrinterColumns"]:
        steps = column["jsonPath"].lstrip(".").split(".")
        assert steps[0] == "metadata" or field_at(root, steps)


def every_schema(schema: dict[str, Any]) -> list[dict[str, Any]]:
    below = [
        *schema.get("properties", {}).values(),
        *([schema["items"]] if "items" in schema else []),
    ]
    return [schema, *(found for each in below for found in every_schema(each))]


def field_at(schema: dict[str, Any], steps: list[str]) -> dict[str, Any]:
    for step in steps:
        schema = schema["properties"][step]
    return schema


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"profile": "turbo"}, {}),
        ({"cpu": {"packagePowerCapPctOfMax": 140}}, {}),
        ({"gpu": {"powerCap": {"capWattsPerGpu": -1}}}, {}),
        ({}, {"predictedPowerHeadroomScore": "high"}),
        ({}, {"conditions": [{"type": "Planned", "status": "Maybe"}]}),
    ],
)
def test_invalid_values_are_refused(spec: dict[str, Any], status: dict[str, Any]) -> None:
    server = joulie_server()
    server.put("nodetwins", TWIN)

    with pytest.raises(Refused) as refused:
        server.put("nodetwins", {"metadata": {"name": "n1"}, "spec": spec, "status": status})

    assert refused.value.code == 422


@pytest.mark.parametrize(
    "status",
    [
        {"schedulableClass": "sleepy"},
        {"predictedPowerHeadroomScore": -50.0},
        {"predictedPowerHeadroomScore": 101.0},
        {"powerMeasurement": {"source": "prometheus"}},
        {"estimatedPUE": 0.9, "estimatedPUESource": "guess"},
    ],
)
def test_a_status_accepts_values_of_other_writers(status: dict[str, Any]) -> None:
    server = joulie_server()
    server.put("nodetwins", TWIN | {"status": status})

    [twin] = server.all("nodetwins").values()
    assert twin["status"] == status
    assert read_twin(msgspec.json.encode(twin)).status is not None


@pytest.mark.parametrize(
    ("wrong", "is_spec_read", "is_status_read"),
    [
        ({"status": {"powerMeasurement": "none"}}, True, False),
        ({"status": {"conditions": [{"reason": "no type"}]}}, True, False),
        ({"spec": {"profile": "balanced"}, "status": {}}, False, True),
        ({"spec": None, "status": None}, False, False),
    ],
)
def test_an_unreadable_part_of_a_twin_counts_as_absent(
    wrong: dict[str, Any], is_spec_read: bool, is_status_read: bool
) -> None:
    read = read_twin(msgspec.json.encode(TWIN | wrong))

    assert read.metadata.name == "n1"
    assert (read.spec is not None, read.status is not None) == (is_spec_read, is_status_read)


def test_an_object_without_readable_metadata_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_twin(b'{"metadata": 3}')


def test_the_manifests_can_be_applied_in_the_order_of_the_readme() -> None:
    """kubectl creates objects in the order of its arguments and of each file."""
    command = re.search(r"kubectl apply (-f deploy/\S+ -f deploy/\S+)`", README.read_text())
    assert command is not None
    made = {"default"}
    for argument in command[1].replace("-f ", "").split():
        path = FOLDER.parents[1] / argument
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            for tree in filter(None, pyyaml.safe_load_all(file.read_text())):
                meta = tree["metadata"]
                assert meta.get("namespace", "default") in made, f"{tree['kind']} {meta['name']}"
                assert tree.get("roleRef", {}).get("name", "default") in made
                made.add(meta["name"])


def test_objects_of_other_writers_are_accepted() -> None:
    """An agent that writes more than Joulie reads, and the operator of a GPU vendor."""
    server = joulie_server()
    found = node_hardware("n1", gpus=8)
    found["status"]["cpu"]["landmarks"] = {"minFreqMHz": 1500}
    found["status"]["network"] = {"linkClass": "ib"}
    server.put("nodehardwares", found)
    server.put("gpus", card("GPU-1", "n1"))
    server.put("nodetwins", TWIN | {"status": {"controlStatus": {"cpu": {"result": "applied"}}}})

    assert server.all("nodehardwares")["n1"]["status"] == found["status"]
    assert server.all("gpus")["gpu-1"]["spec"]["totalVRAMmb"] == 81_559
