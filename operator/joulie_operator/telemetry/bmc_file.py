"""The file of BMCs whose readings are the power of nodes. Secrets are in files of their own.

    [[bmc]]
    nodes = "joulie.io/rack=r1"
    kind = "redfish"
    address = "https://{node}.bmc.example"
    user_file = "/etc/joulie/bmc/user"
    password_file = "/etc/joulie/bmc/password"

The first entry whose labels a node has is the node's. `{node}` stands for the name of the node, and
a name such as `{bmc.node-restriction.kubernetes.io/host}` for one of its labels. The API server
lets no kubelet set labels of that domain: another label could send the credentials to any host.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from joulie_operator.node_templates import NoSuchLabel, fields_in, filled
from joulie_operator.planning.eligible import selector
from joulie_projections.state.state import NodeState

_RESTRICTED = "node-restriction.kubernetes.io"  # labels of it are set by administrators alone


class NotAvailable(Exception):
    """Why the power of a node is not known from its BMC."""


class BmcEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["redfish", "ipmi"]
    address: str
    user_file: str
    password_file: str
    nodes: str = ""
    chassis: str = ""  # redfish: the id of the chassis; empty for the only one with a reading
    ca_file: str = ""  # redfish: the authority of the certificate; empty for the system's
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0

    def problems(self) -> list[str]:
        found = []
        if self.kind == "redfish" and not self.address.startswith("https://"):
            found.append(f"{self.address!r} is no https:// URL")
        for field in fields_in(self.address + self.chassis):
            if field != "node" and not _is_restricted(field):
                found.append(
                    f"{{{field}}}: name a label of {_RESTRICTED}, which no kubelet can set"
                )
        for file in (self.user_file, self.password_file, self.ca_file):
            if file and not Path(file).is_file():
                found.append(f"there is no file {file}")
        return found


def _is_restricted(label: str) -> bool:
    domain = label.partition("/")[0]
    return domain == _RESTRICTED or domain.endswith(f".{_RESTRICTED}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bmc: tuple[BmcEntry, ...]


class Bmc(NamedTuple):
    """Where the power of one node is read."""

    entry: BmcEntry
    address: str
    chassis: str


def read_bmcs(path: Path) -> tuple[BmcEntry, ...]:
    """Raises ValueError with the place and the reason."""
    try:
        entries = msgspec.convert(tomllib.loads(path.read_text()), _File).bmc
        for entry in entries:
            selector(entry.nodes)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    wrong = [
        f"bmc {number}: {problem}"
        for number, entry in enumerate(entries, 1)
        for problem in entry.problems()
    ]
    if wrong:
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    return entries


def bmc_of(entries: Sequence[BmcEntry], name: str, node: NodeState) -> Bmc | None:
    """None if no entry covers the node. Raises NotAvailable if a label is missing."""
    for entry in entries:
        if selector(entry.nodes).items() <= node.labels.items():
            try:
                address = filled(entry.address, name, node)
                return Bmc(entry, address, filled(entry.chassis, name, node))
            except NoSuchLabel as error:
                raise NotAvailable(str(error)) from error
    return None
