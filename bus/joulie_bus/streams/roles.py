"""The permissions of each role at the broker. docs/security.md shows them; tests check each verb.

A role can do only what is listed here. The clusters of one broker share these roles, so the cluster
in a subject is a wildcard.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from joulie_bus.streams.subjects import (
    CAPS,
    CUTS,
    LIVE,
    PATTERNS,
    PROJECTOR,
    SPOOLS,
    Family,
    Stream,
    escape,
)


class Role(StrEnum):
    ADMIN = "admin"  # creates the streams
    PROJECTOR = "projector"
    OPERATOR = "operator"
    EXTENDER = "extender"
    AGENT = "agent"  # reads the power of its node
    SIMULATOR = "simulator"
    AUDITOR = "auditor"
    ARCHIVIST = "archivist"  # archives, and asks the projector to delete what the archive holds
    CONSOLE = "console"  # shows the present and the past to people
    VIEWER = "viewer"  # reads only


class Grant(NamedTuple):
    """The permissions of a user. `deny` restricts `publish`; `answers`: it may answer requests."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny: tuple[str, ...] = ()
    answers: bool = False


def inbox(role: Role, name: str = "") -> str:
    """The inbox for replies to this role, which no other role may subscribe to.

    `name` is that of a node or replica with its own identity.
    """
    return f"_INBOX_{role}_{escape(name)}" if name else f"_INBOX_{role}"


def _to(*families: Family) -> tuple[str, ...]:
    return tuple(PATTERNS[family].format(cluster="*") for family in families)


_LIVE = LIVE.format(cluster="*")
_CAPS = CAPS.format(cluster="*")
_SPOOLS = SPOOLS.format(cluster="*")
_OF_A_REPLICA = (*_to(Family.DEC), _SPOOLS)
_CUTS = CUTS.format(cluster="*")
# They share the account that holds the streams (`accounts`); each other role has one of its own.
CORE_ROLES = frozenset({Role.ADMIN, Role.PROJECTOR})
_ASK = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES")
# The projector creates consumers without acknowledgements, which the broker removes when idle.
FOLLOW = ("$JS.API.CONSUMER.CREATE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*")
# Other readers ask for batches of messages, for which the broker keeps nothing.
DIRECT = "$JS.API.DIRECT.GET.*"
# Writers with compare-and-set look up the message of the other writer.
_LAST = "$JS.API.STREAM.MSG.GET.{}"
_OUTCOMES = f"joulie.dec.*.{PROJECTOR}"
_PURGE = "$JS.API.STREAM.PURGE.{}"
ONE_ANSWER = {"max": 1, "expires": "2m"}  # to each request, within this time

_PUBLISH: dict[Role, tuple[str, ...]] = {
    Role.PROJECTOR: (
        *FOLLOW,
        DIRECT,  # while the broker can make no consumer
        *_to(Family.HEADS),
        _LIVE,
        _OUTCOMES,  # the outcomes of answers, in the same stream as the answers
        *(_LAST.format(stream) for stream in (Stream.HEADS, Stream.PLAN)),
        *(_PURGE.format(stream) for stream in Stream if stream is not Stream.HEADS),
    ),
    Role.OPERATOR: (*_to(Family.TEL, Family.OBS, Family.PLAN), _CAPS, _LAST.format(Stream.PLAN)),
    Role.EXTENDER: (
        *_to(Family.DEC, Family.CLAIM),
        _SPOOLS,
        _LAST.format(Stream.CLAIM),
        _LAST.format(Stream.HEADS),  # what the signed log must have of its decisions
    ),
    Role.AGENT: _to(Family.AGENT),
    Role.SIMULATOR: _to(Family.TEL, Family.OBS),
    Role.AUDITOR: (DIRECT,),
    Role.ARCHIVIST: (DIRECT, _CUTS),
    Role.CONSOLE: (DIRECT,),
    Role.VIEWER: (),
}
# Live messages only, not those of streams.
_SUBSCRIBE: dict[Role, tuple[str, ...]] = {
    Role.VIEWER: _to(Family.PLAN, Family.DEC, Family.HEADS),
    Role.AGENT: (_CAPS,),
    Role.CONSOLE: (_SPOOLS,),
    Role.PROJECTOR: (_CUTS,),
}
_NEVER: dict[Role, tuple[str, ...]] = {Role.EXTENDER: (_OUTCOMES,)}
_VIEWING = frozenset(Role) - {Role.ADMIN, Role.PROJECTOR, Role.AGENT, Role.ARCHIVIST}


def _grant(role: Role) -> Grant:
    if role is Role.ADMIN:
        return Grant((">",), (">",))
    live = (_LIVE,) if role in _VIEWING else ()
    heard = (f"{inbox(role)}.>", *live, *_SUBSCRIBE.get(role, ()))
    return Grant(
        (*_ASK, *_PUBLISH[role]), heard, _NEVER.get(role, ()), answers=role is Role.PROJECTOR
    )


GRANTS: dict[Role, Grant] = {role: _grant(role) for role in Role}


def agent_grant(node: str) -> Grant:
    """For the agent of one node: its subject, the caps of its node, and replies."""
    own = f"joulie.caps.*.{escape(node)}"
    return Grant((f"joulie.agent.*.{escape(node)}",), (f"{inbox(Role.AGENT, node)}.>", own))


def replica_grant(replica: str) -> Grant:
    """For one replica of the extender: the permissions of its role, with its own subjects only."""
    role = GRANTS[Role.EXTENDER]
    own = {pattern: pattern.removesuffix("*") + escape(replica) for pattern in _OF_A_REPLICA}
    publish = tuple(own.get(subject, subject) for subject in role.publish)
    subscribe = (f"{inbox(Role.EXTENDER, replica)}.>", *role.subscribe[1:])
    return Grant(publish, subscribe, role.deny)


NAMED: dict[Role, Callable[[str], Grant]] = {
    Role.AGENT: agent_grant,
    Role.EXTENDER: replica_grant,
}


def grant_of(role: Role, name: str = "") -> Grant:
    """The grant of a role, or of the node or replica with this name."""
    return NAMED[role](name) if name else GRANTS[role]


def permissions(grant: Grant) -> dict[str, Any]:
    """In the syntax of the configuration of nats-server."""
    publish = {"allow": grant.publish, "deny": grant.deny} if grant.deny else grant.publish
    answers = {"allow_responses": ONE_ANSWER} if grant.answers else {}
    return {"publish": publish, "subscribe": grant.subscribe, **answers}
