"""Which version of the API of DRA a server has."""

import re

import msgspec

from joulie_operator.kube.api_client import ApiServer
from joulie_operator.resources.device_objects import (
    GROUP,
    TAINT_RULE_VERSIONS,
    TAINT_RULES,
    VERSIONS,
)

IN_ORDER_SINCE = 36  # the minor version


class _Version(msgspec.Struct):
    version: str = ""


class ServerVersion(msgspec.Struct, rename={"git": "gitVersion"}):
    git: str = ""  # such as v1.37.2
    major: str = ""
    minor: str = ""  # such as 37, or 37+


class _Group(msgspec.Struct):
    versions: list[_Version] = []


async def served_version(api: ApiServer) -> str:
    """The version of resource.k8s.io to read; empty if the server has none that is known here."""
    served = await _served(api)
    return next((version for version in VERSIONS if version in served), "")


async def taint_rule_version(api: ApiServer) -> str:
    """The version that has DeviceTaintRules, which came later than the others; empty for none.

    Raises KubernetesRefused without the right to list them.
    """
    served = await _served(api)
    for version in TAINT_RULE_VERSIONS:
        path = f"/apis/{GROUP}/{version}/{TAINT_RULES}?limit=1"
        if version in served and await api.get(path) is not None:
            return version
    return ""


async def server_version(api: ApiServer) -> ServerVersion:
    """Empty if the server does not say."""
    return msgspec.json.decode(await api.get("/version") or b"{}", type=ServerVersion)


async def allocates_in_order(api: ApiServer) -> bool:
    """Whether kube-scheduler takes devices in the order of their pools and slices, by the version
    of the API server; the scheduler may be one minor version older for a while."""
    server = await server_version(api)
    digits = re.match(r"\d+", server.minor)
    minor = int(digits.group()) if digits else 0
    return (server.major, minor) >= ("1", IN_ORDER_SINCE)


async def _served(api: ApiServer) -> set[str]:
    found = await api.get(f"/apis/{GROUP}")
    if found is None:
        return set()
    return {each.version for each in msgspec.json.decode(found, type=_Group).versions}
