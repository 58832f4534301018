"""The names in a client's certificate, as `ssl` describes it, and in the setting that lists them.

No I/O, no clock.
"""

from collections.abc import Mapping
from typing import Any


def names_in(peer: Mapping[str, Any]) -> frozenset[str]:
    """The common name and the DNS names."""
    subject = (pair for part in peer.get("subject", ()) for pair in part)
    common = {value for kind, value in subject if kind == "commonName"}
    return frozenset(common | {v for kind, v in peer.get("subjectAltName", ()) if kind == "DNS"})


def is_client(peer: Mapping[str, Any] | None, names: frozenset[str]) -> bool:
    """Whether the certificate, which was checked against its authority, has one of the names; any
    certificate has, if there are no names."""
    if not peer:
        return False
    return not names or not names.isdisjoint(names_in(peer))


def certificate_names(text: str) -> frozenset[str]:
    """common names or DNS names with commas between; empty for any"""
    return frozenset(filter(None, map(str.strip, text.split(","))))
