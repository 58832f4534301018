"""Names that Kubernetes allows, and names in the paths of its API.

The API server checks names when it stores an object. A name from another source, such as the body
of a request, is checked here before it is looked up, logged or used in a request.
"""

import re
from collections.abc import Sequence
from urllib.parse import quote

from joulie_bus.errors import BadName

LONGEST_SUBDOMAIN = 253  # RFC 1123; nodes, pods
LONGEST_LABEL = 63  # namespaces
LONGEST_UID = 64  # opaque to Kubernetes; a UUID, or 32 digits of a static pod
SHOWN = 80  # characters of a wrong name in a message
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_BETWEEN = b"\n"
_ALPHANUMERIC = b"abcdefghijklmnopqrstuvwxyz0123456789"
# Each byte by its kind: a letter or a digit, a dash, an end of a label; "?" is not allowed.
_KINDS = bytes(
    ord("a" if byte in _ALPHANUMERIC else "-" if byte in b"-" else "\n" if byte in b".\n" else "?")
    for byte in range(256)
)
# Another byte, or a label that is empty or does not begin and end with a letter or a digit.
_WRONG = (b"?", b"\n\n", b"\n-", b"-\n")


def is_subdomain(name: str) -> bool:
    return len(name) <= LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) is not None


def is_label(name: str) -> bool:
    return len(name) <= LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_label_key(key: str) -> bool:
    """The key of a label of an object: a name, with the domain of its owner before it or without"""
    domain, slash, name = key.rpartition("/")
    is_name = len(name) <= LONGEST_LABEL and _UID.fullmatch(name) is not None
    return is_name and (is_subdomain(domain) if slash else True)


def is_uid(uid: str) -> bool:
    return len(uid) <= LONGEST_UID and _UID.fullmatch(uid) is not None


def first_wrong(names: Sequence[str]) -> int | None:
    """The index of the first name that is not a subdomain name; None if all are.

    A request names thousands of nodes: all of them are checked in a few passes over their bytes.
    """
    if not names:
        return None
    joined = _BETWEEN + "\n".join(names).encode(errors="surrogatepass") + _BETWEEN
    kinds = joined.translate(_KINDS)
    is_right = (
        joined.count(_BETWEEN) == len(names) + 1
        and not any(wrong in kinds for wrong in _WRONG)
        and max(map(len, names)) <= LONGEST_SUBDOMAIN
    )
    if is_right:
        return None
    return next((at for at, name in enumerate(names) if not is_subdomain(name)), None)


def require_subdomain(name: str, what: str) -> str:
    if not is_subdomain(name):
        raise BadName(what, name[:SHOWN], "a DNS subdomain name (RFC 1123)")
    return name


def require_label(name: str, what: str) -> str:
    if not is_label(name):
        raise BadName(what, name[:SHOWN], "a DNS label (RFC 1123)")
    return name


def require_uid(uid: str, what: str) -> str:
    if not is_uid(uid):
        raise BadName(what, uid[:SHOWN], "letters and digits, with . _ - between")
    return uid


def path_segment(name: str) -> str:
    """The name as one segment of a URL path, with all characters escaped as needed."""
    if name in ("", ".", ".."):
        raise BadName("a name in a path", name, "a name that is one segment of a path")
    return quote(name, safe="")
