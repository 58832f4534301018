"""Texts of an administrator's file with fields of a node, as `https://{node}.bmc.example`.

`{node}` is the name of the node, and another field the name of one of its labels.
"""

import re

from joulie_projections.state.state import NodeState

_FIELD = re.compile(r"\{([^{}]*)\}")


class NoSuchLabel(Exception):
    """The node has no label that a text names."""


def fields_in(text: str) -> list[str]:
    return _FIELD.findall(text)


def filled(text: str, name: str, node: NodeState) -> str:
    """Raises NoSuchLabel."""
    return _FIELD.sub(lambda found: _value(found[1], name, node), text)


def _value(field: str, name: str, node: NodeState) -> str:
    value = name if field == "node" else node.labels.get(field, "")
    if not value:
        raise NoSuchLabel(f"the node has no label {field}")
    return value
