"""The file of power controllers: how the power of nodes is read, and how nodes are switched.

    [[controller]]
    nodes = "rack.node-restriction.kubernetes.io/name=r1"
    kind = "redfish"
    address = "https://{node}.bmc.example"
    user_file = "/etc/joulie/power/user"
    password_file = "/etc/joulie/power/password"
    switches = true

The first entry with the use (`reads`, `switches`) whose labels a node has is the node's. `{node}`
stands for the name of the node, and `{bmc.node-restriction.kubernetes.io/host}` for one of its
labels. The API server lets no kubelet set labels of that domain: another label would let a node
choose where credentials are sent and which machine a program switches.
"""

import tomllib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from joulie_bus.core.kube_names import is_subdomain
from joulie_operator.controllers.node_templates import NoSuchLabel, fields_in, filled
from joulie_operator.planning.eligible import selector
from joulie_projections.state.state import NodeState

RESTRICTED = "node-restriction.kubernetes.io"  # labels of it are set by administrators alone
Use = Literal["reads", "switches"]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=300)]


class _Entry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"
):
    """What all kinds have."""

    nodes: str = ""  # labels; empty: all nodes

    def texts(self) -> tuple[str, ...]:
        """The texts with fields of a node."""
        return ()

    def files(self) -> tuple[str, ...]:
        return ()

    def machine(self, use: Use) -> Hashable:
        """What is read or switched; None if that is the Node object itself."""
        del use
        return None

    def filled(self, name: str, node: NodeState) -> Self:
        """With the fields of this node. Raises NoSuchLabel."""
        del name, node
        return self

    def problems(self) -> list[str]:
        named = (
            *selector(self.nodes),
            *(each for text in self.texts() for each in fields_in(text)),
        )
        found = [
            f"{label}: name a label of {RESTRICTED}, which no kubelet can set"
            for label in dict.fromkeys(named)
            if label != "node" and not _is_restricted(label)
        ]
        return found + [
            f"there is no file {file}" for file in self.files() if file and not Path(file).is_file()
        ]


class RedfishEntry(_Entry, frozen=True, tag="redfish"):
    """A BMC with Redfish (DSP0266)."""

    address: str
    user_file: str
    password_file: str
    ca_file: str = ""  # the authority of the certificate; empty for the system's
    chassis: str = ""  # the id of the chassis that is read; empty for the only one with a reading
    system: str = ""  # the id of the system that is switched; empty for the first one
    reads: bool = True
    switches: bool = False
    timeout_s: Timeout = 10.0

    def texts(self) -> tuple[str, ...]:
        return self.address, self.chassis, self.system

    def files(self) -> tuple[str, ...]:
        return self.user_file, self.password_file, self.ca_file

    def machine(self, use: Use) -> Hashable:
        return self.address.rstrip("/").casefold(), self.chassis if use == "reads" else self.system

    def filled(self, name: str, node: NodeState) -> Self:
        address, chassis, system = (filled(text, name, node) for text in self.texts())
        return msgspec.structs.replace(self, address=address, chassis=chassis, system=system)

    def problems(self) -> list[str]:
        found = super().problems()
        if not _is_https(self.address):
            found.append(f"{self.address!r} is not https://HOST or https://HOST:PORT")
        if not self.reads and not self.switches:
            found.append("it neither reads nor switches")
        return found


class IpmiEntry(_Entry, frozen=True, tag="ipmi"):
    """A BMC whose power ipmitool reads by DCMI."""

    address: str  # a host
    user_file: str
    password_file: str
    timeout_s: Timeout = 10.0

    reads = True
    switches = False

    def texts(self) -> tuple[str, ...]:
        return (self.address,)

    def files(self) -> tuple[str, ...]:
        return self.user_file, self.password_file

    def machine(self, use: Use) -> Hashable:
        del use
        return self.address.casefold()

    def filled(self, name: str, node: NodeState) -> Self:
        return msgspec.structs.replace(self, address=filled(self.address, name, node))


class CommandEntry(_Entry, frozen=True, tag="command"):
    """Programs with fixed arguments, without a shell."""

    on: tuple[str, ...]
    off: tuple[str, ...]
    state: tuple[str, ...] = ()  # exits with 0 for on, 1 for off; empty: not known
    timeout_s: Timeout = 20.0

    reads = False
    switches = True

    def texts(self) -> tuple[str, ...]:
        return (*self.on, *self.off, *self.state)

    def machine(self, use: Use) -> Hashable:
        del use
        return self.off

    def filled(self, name: str, node: NodeState) -> Self:
        on, off, state = (
            tuple(filled(word, name, node) for word in words)
            for words in (self.on, self.off, self.state)
        )
        return msgspec.structs.replace(self, on=on, off=off, state=state)

    def problems(self) -> list[str]:
        empty = [name for name in ("on", "off") if not getattr(self, name)]
        return super().problems() + [f"{name} names no program" for name in empty]


class AutoscalerEntry(_Entry, frozen=True, tag="autoscaler"):
    """Karpenter or cluster-autoscaler: it has no credentials, and follows annotations."""

    reads = False
    switches = True

    def problems(self) -> list[str]:
        return []  # whatever labels choose it, only the node itself can go


Entry = RedfishEntry | IpmiEntry | CommandEntry | AutoscalerEntry


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    controller: tuple[Entry, ...]


class Controllers(NamedTuple):
    """Of each node that an entry covers: its entry with the fields filled in, or why not."""

    entries: Mapping[str, Entry]
    problems: Mapping[str, str]


def read_controllers(path: Path) -> tuple[Entry, ...]:
    """Raises ValueError with the place and the reason."""
    try:
        entries = msgspec.convert(tomllib.loads(path.read_text()), _File).controller
        for entry in entries:
            selector(entry.nodes)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    wrong = [
        f"controller {number}: {problem}"
        for number, entry in enumerate(entries, 1)
        for problem in entry.problems()
    ]
    if wrong:
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    return entries


def controllers_of(
    entries: Sequence[Entry], use: Use, nodes: Mapping[str, NodeState]
) -> Controllers:
    """Of all nodes of the cluster: one that two of them name is read and switched for neither."""
    rows = [(selector(entry.nodes).items(), entry) for entry in entries if getattr(entry, use)]
    found, problems = dict[str, Entry](), dict[str, str]()
    for name, node in nodes.items():
        entry = next((each for labels, each in rows if labels <= node.labels.items()), None)
        if entry is None or not is_subdomain(name):  # the name becomes part of a URL
            continue
        try:
            found[name] = entry.filled(name, node)
        except NoSuchLabel as error:
            problems[name] = str(error)
    named = Counter(entry.machine(use) for entry in found.values())
    for name, entry in list(found.items()):
        if (machine := entry.machine(use)) is not None and named[machine] > 1:
            problems[name] = _SHARED[use].format(machine=_shown(machine))
            del found[name]
    return Controllers(found, problems)


_SHARED: Mapping[Use, str] = {
    "reads": "{machine} is the BMC of several nodes; name the chassis of each",
    "switches": "{machine} switches several nodes; name the system or the arguments of each",
}


def _shown(machine: Hashable) -> str:
    words = machine if isinstance(machine, tuple) else (machine,)
    return " ".join(str(word) for word in words if word)


def _is_restricted(label: str) -> bool:
    domain = label.partition("/")[0]
    return domain == RESTRICTED or domain.endswith(f".{RESTRICTED}")


def _is_https(address: str) -> bool:
    """A host and a port alone: a user in the URL would be a secret in the file."""
    for field in fields_in(address):
        address = address.replace(f"{{{field}}}", "field")
    try:
        url = urlsplit(address)
        is_bare = url.path in ("", "/") and not (url.query or url.fragment or "@" in url.netloc)
        return url.scheme == "https" and bool(url.hostname) and is_bare and url.port != 0
    except ValueError:
        return False
