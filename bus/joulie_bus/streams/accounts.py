"""The accounts of the broker: one for the core, which holds the streams, and one for each role.

The broker sends its answers to the reply subject of a request, and a consumer delivers to any
subject, without a check of permissions. Only an account contains both. A role outside of the core
therefore reaches the streams through imports alone, and an answer to it stays in its own account,
where no stream is (docs/decisions/0068-keep-the-streams-in-an-account-of-the-core.md).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from joulie_bus.streams.roles import CORE_ROLES, DIRECT, GRANTS, Role, inbox, permissions

CORE = "JOULIE"
# The broker forgets where an unfinished answer goes: a request leaves nothing behind.
FORGOTTEN_AFTER = "5s"
# An agent sends readings and its inventory; roles that only read send requests alone.
SMALL_PAYLOAD = 128 * 1024
_SMALL = frozenset({Role.AGENT, Role.AUDITOR, Role.CONSOLE, Role.VIEWER})


def account_of(role: Role) -> str:
    return CORE if role in CORE_ROLES else f"{CORE}_{role.upper()}"


def accounts(users: Mapping[Role, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """All accounts with their users, in the syntax of the configuration of nats-server."""
    core = [user for role in Role if role in CORE_ROLES for user in users.get(role, ())]
    others = {
        account_of(role): _account(role, users.get(role, ()))
        for role in Role
        if role not in CORE_ROLES
    }
    return {CORE: {"jetstream": "enabled", "users": core, "exports": exports()}, **others}


def user(role: Role, password: str) -> dict[str, Any]:
    return {"user": str(role), "password": password, "permissions": permissions(GRANTS[role])}


def written(
    users: Mapping[Role, Sequence[Mapping[str, Any]]], more: Mapping[str, Any] | None = None
) -> str:
    """One line per account, `more` of which are others."""
    lines = [
        f"  {name}: {msgspec.json.encode(account).decode()}"
        for name, account in (accounts(users) | dict(more or {})).items()
    ]
    return "accounts {\n" + "\n".join(lines) + "\n}"


def exports() -> list[dict[str, Any]]:
    """What the core offers, each to the accounts of the roles that may use it."""
    services = [
        {"service": subject, **_answers(subject), "accounts": names}
        for subject, names in _users_of(_services)
    ]
    streams = [
        {"stream": subject, "accounts": names} for subject, names in _users_of(_live_subjects)
    ]
    return services + streams


def imports(role: Role) -> list[dict[str, Any]]:
    services = [{"service": {"account": CORE, "subject": each}} for each in _services(role)]
    streams = [
        {"stream": {"account": account, "subject": each}}
        for each in _live_subjects(role)
        for account in (CORE, *map(account_of, _publishers(each)))
    ]
    return services + streams


def _account(role: Role, users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    limits = {"limits": {"max_payload": SMALL_PAYLOAD}} if role in _SMALL else {}
    live = [
        {"stream": subject, "accounts": names}
        for subject, names in _users_of(_live_subjects)
        if role in _publishers(subject)
    ]
    exported = {"exports": live} if live else {}
    return {**limits, "users": list(users), **exported, "imports": imports(role)}


def _publishers(subject: str) -> list[Role]:
    """The roles outside of the core that publish on it. What they send to the core by an import
    reaches the streams there, but no import of another account: that one imports it from them."""
    return [role for role in Role if role not in CORE_ROLES and subject in GRANTS[role].publish]


def _answers(subject: str) -> dict[str, str]:
    """A batch of messages has many answers, all other requests have one."""
    if subject != DIRECT:
        return {}
    return {"response_type": "Stream", "response_threshold": FORGOTTEN_AFTER}


def _services(role: Role) -> list[str]:
    return list(GRANTS[role].publish)


def _live_subjects(role: Role) -> list[str]:
    own = f"{inbox(role)}.>"
    return [subject for subject in GRANTS[role].subscribe if subject != own]


def _users_of(subjects: Callable[[Role], list[str]]) -> list[tuple[str, list[str]]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for role in Role:
        if role not in CORE_ROLES:
            for subject in subjects(role):
                found[subject].append(account_of(role))
    return list(found.items())
