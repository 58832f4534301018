"""print accounts and users of the broker for nats-server's configuration.

joulie grant all
joulie grant agent node-17
"""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING

from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

# A test compares them with the roles at the broker.
ROLES = (
    *("admin", "projector", "operator", "extender", "agent", "simulator", "auditor"),
    *("archivist", "console", "viewer"),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "role", choices=(*ROLES, "all"), help="role of the user; all: every account"
    )
    parser.add_argument(
        "name", nargs="?", default="", help="the node of an agent or the replica of an extender"
    )


EVERY_ROLE = "all"
ACCOUNTS = """\
# For nats-server's configuration, in place of its users. Each password is a variable: define it in
# a file that only nats-server may read, one line NATS_ROLE: "password" for each, and include that
# file above these lines. Or write an nkey or the name of a certificate. The program of a role needs
# NATS_INBOX=_INBOX_ROLE.
#
# In the block `jetstream` of the same file, to bound what the broker keeps of batches that are
# never committed:
#   {limits}"""


# For nats-server's configuration, in place of its users. Each password is a variable: define it in
# a file that only nats-server may read, one line NATS_ROLE: "password" for each, and include that
# file above these lines. Or write an nkey or the name of a certificate. The program of a role needs
# NATS_INBOX=_INBOX_ROLE.
#
# In the block `jetstream` of the same file, to bound what the broker keeps of batches that are
# never committed:
#   {limits}"""
USER = """\
# For `users` of the account {account} (`joulie grant all` prints the accounts); add a password, an
# nkey or a certificate's name. The program that uses it needs NATS_INBOX={inbox}."""


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, _: Wiring) -> int:
    from joulie_bus.streams.accounts import account_of
    from joulie_bus.streams.roles import NAMED, Role, grant_of, inbox, permissions
    from joulie_bus.streams.subjects import escape

    if args.role == EVERY_ROLE:
        return _print_accounts(args.name)
    role, name = Role(args.role), args.name
    if name and role not in NAMED:
        _refuse_name(role, name)
    login = f"{role}-{escape(name)}" if name else str(role)
    print(USER.format(account=account_of(role), inbox=inbox(role, name)))
    print(json.dumps({"user": login, "permissions": permissions(grant_of(role, name))}, indent=2))
    return 0


def with_variables(text: str) -> str:
    """nats-server replaces a variable only where it is no text."""
    return re.sub(r'"(\$NATS_\w+)"', r"\1", text)


def every_account() -> str:
    from joulie_bus.streams.accounts import user, written
    from joulie_bus.streams.roles import Role

    return with_variables(written({role: [user(role, f"$NATS_{role.upper()}")] for role in Role}))


def _print_accounts(name: str) -> int:
    from joulie_bus.streams.batch_limits import BATCH_LIMITS

    if name:
        _refuse_name(EVERY_ROLE, name)
    print(ACCOUNTS.format(limits=BATCH_LIMITS))
    print(every_account())
    return 0


def _refuse_name(role: str, name: str) -> None:
    from joulie_bus.errors import SettingsError
    from joulie_bus.streams.roles import NAMED

    named = " and ".join(NAMED)
    raise SettingsError(
        [f"{name!r} is the name of no {role}: only `joulie grant` of {named} takes one"]
    )
