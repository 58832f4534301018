"""Which version of the API of DRA a server has."""

import msgspec

from joulie_operator.kube.api_client import ApiServer
from joulie_operator.resources.device_objects import GROUP, VERSIONS


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    versions: list[_Version] = []


async def served_version(api: ApiServer) -> str:
    """The version of resource.k8s.io to read; empty if the server has none that is known here."""
    found = await api.get(f"/apis/{GROUP}")
    if found is None:
        return ""
    served = {each.version for each in msgspec.json.decode(found, type=_Group).versions}
    return next((version for version in VERSIONS if version in served), "")
