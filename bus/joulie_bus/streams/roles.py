"""Who may say and hear what, in one table; docs/security.md shows it, and a test tests each verb.

What a role is not allowed here it cannot do: the lists are all there is. The clusters of one broker
share it, so a subject's cluster is open.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from joulie_bus.streams.subjects import LIVE, PATTERNS, PROJECTOR, Family, Stream, escape


class Role(StrEnum):
    ADMIN = "admin"  # makes the streams
    PROJECTOR = "projector"
    OPERATOR = "operator"
    EXTENDER = "extender"
    AGENT = "agent"  # reads the power of its node
    SIMULATOR = "simulator"
    AUDITOR = "auditor"
    ARCHIVIST = "archivist"  # archives, and purges what the archive holds
    CONSOLE = "console"  # shows people what happens and what happened
    VIEWER = "viewer"  # looks on


class Grant(NamedTuple):
    """What a user may do. `deny` takes something away from `publish`."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny: tuple[str, ...] = ()


def inbox(role: Role, name: str = "") -> str:
    """Where answers to this role go. Its own, so that no other one can listen there.

    `name` is that of a node or a replica with an identity of its own.
    """
    return f"_INBOX_{role}_{escape(name)}" if name else f"_INBOX_{role}"


def _to(*families: Family) -> tuple[str, ...]:
    return tuple(PATTERNS[family].format(cluster="*") for family in families)


_LIVE = LIVE.format(cluster="*")
_ASK = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES")
# Readers make consumers of their own, without acknowledgements, which go away by themselves.
_READ = ("$JS.API.CONSUMER.CREATE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*")
# Who writes only if he is the first looks up who was.
_LAST = "$JS.API.STREAM.MSG.GET.{}"
_OUTCOMES = f"joulie.dec.*.{PROJECTOR}"
_PURGE = "$JS.API.STREAM.PURGE.{}"

_SAYS: dict[Role, tuple[str, ...]] = {
    Role.PROJECTOR: (
        *_READ,
        *_to(Family.HEADS),
        _LIVE,
        _OUTCOMES,  # what became of the answers, in the stream that has them
        _LAST.format(Stream.HEADS),
    ),
    Role.OPERATOR: (*_to(Family.TEL, Family.OBS, Family.PLAN), _LAST.format(Stream.PLAN)),
    Role.EXTENDER: (*_to(Family.DEC, Family.CLAIM), _LAST.format(Stream.CLAIM)),
    Role.AGENT: _to(Family.AGENT),
    Role.SIMULATOR: _to(Family.TEL, Family.OBS),
    Role.AUDITOR: _READ,
    Role.ARCHIVIST: (
        *_READ,
        _LAST.format(Stream.PLAN),
        *(_PURGE.format(stream) for stream in Stream if stream is not Stream.HEADS),
    ),
    Role.CONSOLE: _READ,
    Role.VIEWER: (),
}
# As it is published, beside the streams: nothing that was said before, and nothing twice.
_HEARS: dict[Role, tuple[str, ...]] = {Role.VIEWER: _to(Family.PLAN, Family.DEC, Family.HEADS)}
_NEVER: dict[Role, tuple[str, ...]] = {Role.EXTENDER: (_OUTCOMES,)}
_VIEWING = frozenset(Role) - {Role.ADMIN, Role.PROJECTOR, Role.AGENT, Role.ARCHIVIST}


def _grant(role: Role) -> Grant:
    if role is Role.ADMIN:
        return Grant((">",), (">",))
    live = (_LIVE,) if role in _VIEWING else ()
    heard = (f"{inbox(role)}.>", *live, *_HEARS.get(role, ()))
    return Grant((*_ASK, *_SAYS[role]), heard, _NEVER.get(role, ()))


GRANTS: dict[Role, Grant] = {role: _grant(role) for role in Role}


def agent_grant(node: str) -> Grant:
    """For the agent of one node: its node's subject, and answers."""
    return Grant((f"joulie.agent.*.{escape(node)}",), (f"{inbox(Role.AGENT, node)}.>",))


def replica_grant(replica: str) -> Grant:
    """For one replica of the extender: what its role may do, with decisions of its own only."""
    role = GRANTS[Role.EXTENDER]
    own = {decisions: f"joulie.dec.*.{escape(replica)}" for decisions in _to(Family.DEC)}
    publish = tuple(own.get(subject, subject) for subject in role.publish)
    subscribe = (f"{inbox(Role.EXTENDER, replica)}.>", *role.subscribe[1:])
    return Grant(publish, subscribe, role.deny)


NAMED: dict[Role, Callable[[str], Grant]] = {
    Role.AGENT: agent_grant,
    Role.EXTENDER: replica_grant,
}


def grant_of(role: Role, name: str = "") -> Grant:
    """Of the role; or of the one node or replica in it that has this name."""
    return NAMED[role](name) if name else GRANTS[role]


def permissions(grant: Grant) -> dict[str, Any]:
    """As the configuration of a nats-server spells it."""
    publish = {"allow": grant.publish, "deny": grant.deny} if grant.deny else grant.publish
    return {"publish": publish, "subscribe": grant.subscribe}
