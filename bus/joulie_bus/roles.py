"""Who may say and hear what, in one table; docs/security.md shows it, and a test tests each verb.

What a role is not allowed here it cannot do: the lists are all there is. The clusters of one broker
share it, so a subject's cluster is open.
"""

from enum import StrEnum
from typing import NamedTuple

from joulie_bus.subjects import LIVE, PATTERNS, Stream


class Role(StrEnum):
    ADMIN = "admin"  # makes the streams
    PROJECTOR = "projector"
    OPERATOR = "operator"
    EXTENDER = "extender"
    AGENT = "agent"  # reads the power of its node
    SIMULATOR = "simulator"
    AUDITOR = "auditor"
    CONSOLE = "console"  # shows people what happens and what happened
    VIEWER = "viewer"  # looks on


class Grant(NamedTuple):
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox(role: Role) -> str:
    """Where answers to this role go. Its own, so that no other one can listen there."""
    return f"_INBOX_{role}"


def _to(*streams: Stream) -> tuple[str, ...]:
    return tuple(PATTERNS[stream].format(cluster="*") for stream in streams)


_LIVE = LIVE.format(cluster="*")
_ASK = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES")
# Readers make consumers of their own, without acknowledgements, which go away by themselves.
_READ = ("$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.MSG.NEXT.*.*")
# Who writes only if he is the first looks up who was.
_LAST = "$JS.API.STREAM.MSG.GET.{}"

_SAYS: dict[Role, tuple[str, ...]] = {
    Role.PROJECTOR: (
        *_READ,
        *_to(Stream.HEADS),
        _LIVE,
        "joulie.dec.*.projector",  # what became of the answers, in the stream that has them
        _LAST.format(Stream.HEADS),
    ),
    Role.OPERATOR: (*_to(Stream.TEL, Stream.OBS, Stream.PLAN), _LAST.format(Stream.PLAN)),
    Role.EXTENDER: (*_to(Stream.DEC, Stream.CLAIM), _LAST.format(Stream.CLAIM)),
    Role.AGENT: _to(Stream.TEL),
    Role.SIMULATOR: _to(Stream.TEL, Stream.OBS),
    Role.AUDITOR: _READ,
    Role.CONSOLE: _READ,
    Role.VIEWER: (),
}
# As it is published, beside the streams: nothing that was said before, and nothing twice.
_HEARS: dict[Role, tuple[str, ...]] = {Role.VIEWER: _to(Stream.PLAN, Stream.DEC, Stream.HEADS)}
_VIEWING = frozenset(Role) - {Role.ADMIN, Role.PROJECTOR, Role.AGENT}


def _grant(role: Role) -> Grant:
    if role is Role.ADMIN:
        return Grant((">",), (">",))
    live = (_LIVE,) if role in _VIEWING else ()
    return Grant((*_ASK, *_SAYS[role]), (f"{inbox(role)}.>", *live, *_HEARS.get(role, ())))


GRANTS: dict[Role, Grant] = {role: _grant(role) for role in Role}
