"""Generates CustomResourceDefinitions from the types in `custom_resources`.

    .venv/bin/python -m joulie_operator.resources.crds nodetwins \
        > deploy/crds/joulie.io_nodetwins.yaml

A test compares the files in deploy/crds with this output.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import inspect

from joulie_operator.resources.custom_resources import (
    GPU_GROUP,
    GROUP,
    VERSION,
    Gpu,
    NodeHardware,
    NodeTwin,
)

Tree = dict[str, Any]
CATEGORY = "joulie"  # kubectl get joulie


class Column(NamedTuple):
    """A column that kubectl prints."""

    name: str
    type: str
    path: str
    priority: int = 0  # 1: only with -o wide


class Definition(NamedTuple):
    """The parameters of one CustomResourceDefinition."""

    group: str
    plural: str
    kind: str
    shape: type
    short: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def file(self) -> str:
        return f"{self.group}_{self.plural}.yaml"


AGE = Column("Age", "date", ".metadata.creationTimestamp")
DEFINITIONS = (
    Definition(
        GROUP,
        "nodetwins",
        "NodeTwin",
        NodeTwin,
        ("nt",),
        (
            Column("Profile", "string", ".spec.profile"),
            Column("Class", "string", ".status.schedulableClass"),
            Column("Headroom", "number", ".status.predictedPowerHeadroomScore"),
            Column("Cooling", "number", ".status.predictedCoolingStressScore"),
            Column("CPU-Cap", "number", ".spec.cpu.packagePowerCapPctOfMax"),
            Column("GPU-Cap", "number", ".spec.gpu.powerCap.capPctOfMax"),
            Column("Watts", "number", ".status.powerMeasurement.measuredNodePowerW"),
            Column("CPU-Cap-W", "number", ".spec.cpu.packagePowerCapWatts", 1),
            Column("GPU-Cap-W", "number", ".spec.gpu.powerCap.capWattsPerGpu", 1),
            Column("PSU", "number", ".status.predictedPsuStressScore", 1),
            Column("PUE", "number", ".status.estimatedPUE", 1),
            Column("Perf-Pods", "integer", ".status.performancePods", 1),
            Column("Source", "string", ".status.powerMeasurement.source", 1),
            Column("Updated", "date", ".status.lastUpdated", 1),
            AGE,
        ),
    ),
    Definition(
        GROUP,
        "nodehardwares",
        "NodeHardware",
        NodeHardware,
        ("nhw",),
        (
            Column("CPU", "string", ".status.cpu.model"),
            Column("Sockets", "integer", ".status.cpu.sockets"),
            Column("Cores", "integer", ".status.cpu.totalCores"),
            Column("GPU", "string", ".status.gpu.model"),
            Column("GPUs", "integer", ".status.gpu.count"),
            Column("Quality", "string", ".status.quality.overall", 1),
            AGE,
        ),
    ),
    Definition(
        GPU_GROUP,
        "gpus",
        "GPU",
        Gpu,
        (),
        (
            Column("Node", "string", ".spec.nodeName"),
            Column("Model", "string", ".spec.model"),
            Column("Total-MB", "integer", ".spec.totalVRAMmb"),
            Column("Used-MB", "integer", ".status.allocatedVRAMmb"),
            Column("Phase", "string", ".status.phase"),
            Column("Pod", "string", ".status.podName"),
            AGE,
        ),
    ),
)


def definition(of: Definition) -> Tree:
    names: Tree = {
        "kind": of.kind,
        "listKind": f"{of.kind}List",
        "plural": of.plural,
        "singular": of.kind.lower(),
        "categories": [CATEGORY],
    }
    if of.short:
        names["shortNames"] = list(of.short)
    version: Tree = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in of.columns],
        "schema": {"openAPIV3Schema": _root(of.shape)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": of.name},
        "spec": {"group": of.group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _column(column: Column) -> Tree:
    printed: Tree = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return printed | ({"priority": column.priority} if column.priority else {})


def _root(shape: type) -> Tree:
    """A schema may not describe `metadata`: Kubernetes defines it."""
    schema = schema_of(inspect.type_info(shape))
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
    } | schema["properties"]
    schema["required"] = ["spec"]
    return schema


def schema_of(info: inspect.Type) -> Tree:
    """A structural schema: all types are inlined, without references."""
    match info:
        case inspect.Metadata():
            return schema_of(info.type) | (info.extra_json_schema or {})
        case inspect.UnionType():
            return schema_of(next(t for t in info.types if not isinstance(t, inspect.NoneType)))
        case inspect.StructType():
            return _struct(info)
        case inspect.ListType():
            return _list(info)
        case inspect.DictType():
            return {"type": "object", "additionalProperties": schema_of(info.value_type)}
        case inspect.LiteralType():
            return {"type": "string", "enum": list(info.values)}
        case _:
            return _scalar(info)


def _struct(info: inspect.StructType) -> Tree:
    schema: Tree = {"type": "object"}
    if info.cls.__doc__:
        schema["description"] = " ".join(info.cls.__doc__.split())
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        schema["required"] = required
    schema["properties"] = {field.encode_name: schema_of(field.type) for field in info.fields}
    if getattr(info.cls, "OPEN", False):
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _list(info: inspect.ListType) -> Tree:
    schema: Tree = {"type": "array", "items": schema_of(info.item_type)}
    required = schema["items"].get("required", [])
    if "type" in required:  # conditions: one per type, each with its own field manager
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return schema


_SCALARS: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
}
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def _scalar(info: inspect.Type) -> Tree:
    schema: Tree = {"type": _SCALARS[type(info)]}
    limits = {name: getattr(info, of, None) for of, name in _LIMITS.items()}
    schema |= {name: limit for name, limit in limits.items() if limit is not None}
    return schema | ({"format": "int64"} if isinstance(info, inspect.IntType) else {})


# --- the subset of YAML that CRDs need --------------------------------------------------------


_NOT_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml(tree: Mapping[str, Any]) -> str:
    return "\n".join(_lines(tree, "")) + "\n"


def _lines(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in tree.items():
        name = indent + _text(key)
        match value:
            case dict() if value:
                yield f"{name}:"
                yield from _lines(value, indent + "  ")
            case list() if value:
                yield f"{name}:"
                yield from _items(value, indent)
            case _:
                yield f"{name}: {_text(value)}"


def _items(items: Sequence[Any], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict):
            first, *rest = _lines(item, indent + "    ")
            yield f"{indent}  - {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}  - {_text(item)}"


def _text(value: Any) -> str:
    """Plain words unquoted; everything else as JSON, which is valid YAML."""
    is_plain = isinstance(value, str) and value.replace("-", "").replace(".", "").isalnum()
    is_word = is_plain and value[0].isalpha() and value.lower() not in _NOT_WORDS
    return value if is_word else json.dumps(value)


if __name__ == "__main__":
    [made] = [each for each in DEFINITIONS if each.plural == sys.argv[1]]
    sys.stdout.write(yaml(definition(made)))
