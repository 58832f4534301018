"""The paths in documents of Redfish that a client follows: those of the service itself."""

import re
from typing import Any

ROOT = "/redfish/v1/"
_UPWARDS = re.compile(r"\.\.|%2e|[\\\s]", re.IGNORECASE)


def linked(document: dict[str, Any], *names: str) -> str:
    """The path that a document links to by this name; empty if there is none below the root."""
    found: Any = document
    for name in (*names, "@odata.id"):
        found = found.get(name) if isinstance(found, dict) else None
    return own_path(found)


def members(document: dict[str, Any]) -> list[str]:
    found = document.get("Members")
    listed = found if isinstance(found, list) else []
    paths = [own_path(each.get("@odata.id")) for each in listed if isinstance(each, dict)]
    return [path for path in paths if path]


def own_path(found: Any) -> str:
    """The path that a document names, if the service of the document may be called by it: it is
    below the root, so that no address put before it becomes that of another host. Empty if not."""
    if not isinstance(found, str) or not found.startswith(ROOT):
        return ""
    return "" if _UPWARDS.search(found) else found
