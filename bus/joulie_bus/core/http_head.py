"""Rules for the head of an HTTP request, checked before its body is read.

Their input is the method, the path, the header fields as received, and the local address of the
connection. They refuse requests that another site can make a browser send: such a request names the
site in `Origin`, uses a name that resolves to this machine (DNS rebinding, visible in `Host`), and
without a preflight can only post a form or plain text.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

Field = tuple[bytes, bytes]  # name in any case, value
_JSON = "application/json"
_HOST = re.compile(r"(?P<name>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_LONGEST_NAME = 253


class Head(NamedTuple):
    method: str
    path: str  # without the query
    fields: Sequence[Field]
    local: str = ""  # the address of this machine that the client connected to

    def values(self, name: bytes) -> list[bytes]:
        return [value for given, value in self.fields if given.lower() == name]


class HeadRule(NamedTuple):
    # Allowed names besides loopback and the local address. None: any, for a server that only
    # answers under a certificate, which no page's own name has.
    names: frozenset[str] | None = frozenset()
    probes: frozenset[str] = frozenset()  # paths that accept any name: they return no data


class RefusedHead(NamedTuple):
    status: int
    reason: str  # a label of the metric that counts refusals
    why: str


def refusal_of(head: Head, rule: HeadRule) -> RefusedHead | None:
    """None if the request is accepted."""
    return _of_origin(head) or refusal_of_host(head, rule) or _of_body(head)


def _of_origin(head: Head) -> RefusedHead | None:
    if not head.values(b"origin"):
        return None
    why = (
        "The request has an Origin header: a page in a browser sent it. Nothing here is for pages; "
        "send it from a program, without Origin."
    )
    return RefusedHead(403, "origin", why)


def refusal_of_host(head: Head, rule: HeadRule) -> RefusedHead | None:
    if head.path in rule.probes or rule.names is None:
        return None
    given = head.values(b"host")
    if len(given) != 1:
        return RefusedHead(400, "host", "A request needs one Host header, and one only.")
    name = host_name(given[0].decode("latin-1"))
    if name is None:
        return RefusedHead(400, "host", "The Host header is not a name or an address with a port.")
    if is_own_name(name, rule.names, head.local):
        return None
    why = (
        f"{name} is not a name of this server: names of the loopback interface and the address "
        "that the client connected to are, and what the setting for host names lists."
    )
    return RefusedHead(421, "host", why)


def _of_body(head: Head) -> RefusedHead | None:
    if head.values(b"transfer-encoding"):
        why = "Transfer-Encoding is not read. Send the body in one piece with a Content-Length."
        return RefusedHead(411, "transfer_encoding", why)
    has_body = any(length.strip(b"0") for length in head.values(b"content-length"))
    if head.method != "POST" or not has_body:
        return None
    given = head.values(b"content-type")
    if len(given) == 1 and media_type(given[0].decode("latin-1")) == _JSON:
        return None
    return RefusedHead(415, "content_type", f"A body needs the header Content-Type: {_JSON}.")


def media_type(value: str) -> str:
    """The media type without parameters."""
    return value.partition(";")[0].strip().lower()


def host_name(value: str) -> str | None:
    """The name in a Host header, without its port; None if the header is invalid."""
    found = _HOST.fullmatch(value.strip(" \t"))
    return None if found is None else canonical(found["name"])


def is_own_name(name: str, own: Collection[str], local: str = "") -> bool:
    return is_loopback(name) or name in own or (bool(local) and name == canonical(local))


def canonical(name: str) -> str:
    """The name in lower case, without brackets or trailing dot; addresses as Python writes them."""
    plain = name.lower().strip("[]").partition("%")[0]
    try:
        return str(ipaddress.ip_address(plain))
    except ValueError:
        return plain.removesuffix(".")


def canonical_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(canonical, names))


def is_loopback(host: str) -> bool:
    name = canonical(host)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_names(text: str) -> tuple[str, ...]:
    """names or addresses of hosts without ports, with commas between"""
    hosts = tuple(canonical(part.strip()) for part in text.split(",") if part.strip())
    for name in hosts:
        if not _is_host(name):
            raise ValueError(f"{name!r} is not a name or an address without a port")
    return hosts


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None
    return True
