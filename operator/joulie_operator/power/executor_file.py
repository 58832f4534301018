"""The file of executors: which nodes are switched how. Secrets are in files of their own.

    [[executor]]
    nodes = "joulie.io/rack=r1"
    kind = "redfish"
    address = "https://{node}.bmc.example"
    user_file = "/etc/joulie/bmc/user"
    password_file = "/etc/joulie/bmc/password"

The first executor whose labels a node has is the node's. `{node}` stands for the name of the node,
and a name with a slash, such as `{joulie.io/bmc}`, for one of its labels.
"""

import ssl
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from joulie_bus.errors import SwitchFailed
from joulie_operator.kept_secrets import kept_secret
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.node_templates import NoSuchLabel, filled
from joulie_operator.planning.eligible import selector
from joulie_operator.power.executors import Autoscaler, Command, Executor, Redfish
from joulie_projections.state.state import NodeState

Kind = Literal["redfish", "command", "autoscaler"]
REMOVED = ("ipmi", "wake-on-lan")  # kinds of versions up to 0.2.0
_REQUIRED: Mapping[Kind, Sequence[str]] = {
    "redfish": ("address", "user_file", "password_file"),
    "command": ("on", "off"),
    "autoscaler": (),
}


class ExecutorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One executor of the file."""

    kind: Kind
    nodes: str = ""
    address: str = ""
    system: str = ""  # redfish: the id of the system; empty for the first one
    user_file: str = ""
    password_file: str = ""
    ca_file: str = ""  # redfish: the authority of the certificate; empty for the system's
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 20.0

    def problems(self) -> list[str]:
        missing = [name for name in _REQUIRED[self.kind] if not getattr(self, name)]
        found = [f"{self.kind} needs {name}" for name in missing]
        if self.kind == "redfish" and not self.address.startswith(("https://", "http://")):
            found.append(f"{self.address!r} is no URL")
        for file in (self.user_file, self.password_file, self.ca_file):
            if file and not Path(file).is_file():
                found.append(f"there is no file {file}")
        return found


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    executor: tuple[ExecutorEntry, ...]


def read_executors(path: Path) -> tuple[ExecutorEntry, ...]:
    """Raises ValueError with the place and the reason."""
    try:
        table = tomllib.loads(path.read_text())
        _require_known_kinds(table)
        entries = msgspec.convert(table, _File).executor
        for entry in entries:
            selector(entry.nodes)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    wrong = [
        f"executor {number}: {problem}"
        for number, entry in enumerate(entries, 1)
        for problem in entry.problems()
    ]
    if wrong:
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    return entries


def _require_known_kinds(table: Mapping[str, Any]) -> None:
    entries = table.get("executor", ())
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("kind") in REMOVED:
            raise ValueError(
                f"the kind {entry['kind']} is a recipe of the kind command now; "
                'docs/sleeping-nodes.md, "IPMI and wake-on-LAN", has it'
            )


def executor_of(
    entries: Sequence[ExecutorEntry], name: str, node: NodeState, api: ApiServer
) -> Executor | None:
    """None if no entry covers the node. Raises SwitchFailed if a label or a secret is missing."""
    for entry in entries:
        if selector(entry.nodes).items() <= node.labels.items():
            try:
                return _built(entry, name, node, api)
            except NoSuchLabel as error:
                raise SwitchFailed(str(error)) from error
    return None


def _built(entry: ExecutorEntry, name: str, node: NodeState, api: ApiServer) -> Executor:
    def words(parts: Sequence[str]) -> tuple[str, ...]:
        return tuple(filled(part, name, node) for part in parts)

    match entry.kind:
        case "redfish":
            credentials = (
                kept_secret(entry.user_file, SwitchFailed),
                kept_secret(entry.password_file, SwitchFailed),
            )
            address, tls = filled(entry.address, name, node), _tls(entry.ca_file)
            return Redfish(address, credentials, entry.system, entry.timeout_s, tls)
        case "command":
            state = words(entry.state)
            return Command(words(entry.on), words(entry.off), state, entry.timeout_s)
        case "autoscaler":
            return Autoscaler(api)


def _tls(ca_file: str) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=ca_file) if ca_file else True
