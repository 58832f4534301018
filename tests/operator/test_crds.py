"""deploy/crds is what the types say, and an API server that takes them takes our objects."""

from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml  # type: ignore[import-untyped]

from joulie_operator.crds import DEFINITIONS, Definition, definition, yaml
from kube_builders import card, joulie_server, node_hardware
from kube_fields import Refused

FOLDER = Path(__file__).parents[2] / "deploy/crds"
TWIN: dict[str, Any] = {"metadata": {"name": "n1"}, "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_the_committed_file_is_what_the_types_say(of: Definition) -> None:
    assert (FOLDER / of.file).read_text() == yaml(definition(of))


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_the_text_is_yaml_for_everybody(of: Definition) -> None:
    assert pyyaml.safe_load(yaml(definition(of))) == definition(of)


def test_no_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {of.file for of in DEFINITIONS}


@pytest.mark.parametrize("of", DEFINITIONS, ids=lambda of: str(of.kind))
def test_a_schema_is_structural_and_every_column_leads_to_a_field(of: Definition) -> None:
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
        ({}, {"schedulableClass": "sleepy"}),
        ({}, {"predictedPowerHeadroomScore": 101.0}),
        ({}, {"estimatedPUE": 0.9}),
        ({}, {"conditions": [{"type": "Planned", "status": "Maybe"}]}),
    ],
)
def test_what_makes_no_sense_is_refused(spec: dict[str, Any], status: dict[str, Any]) -> None:
    server = joulie_server()
    server.put("nodetwins", TWIN)

    with pytest.raises(Refused) as refused:
        server.put("nodetwins", {"metadata": {"name": "n1"}, "spec": spec, "status": status})

    assert refused.value.code == 422


def test_what_others_write_is_taken() -> None:
    """An agent that says more than we read, and a card's own operator."""
    server = joulie_server()
    found = node_hardware("n1", gpus=8)
    found["status"]["cpu"]["landmarks"] = {"minFreqMHz": 1500}
    found["status"]["network"] = {"linkClass": "ib"}
    server.put("nodehardwares", found)
    server.put("gpus", card("GPU-1", "n1"))
    server.put("nodetwins", TWIN | {"status": {"controlStatus": {"cpu": {"result": "applied"}}}})

    assert server.all("nodehardwares")["n1"]["status"] == found["status"]
    assert server.all("gpus")["gpu-1"]["spec"]["totalVRAMmb"] == 81_559
