"""`joulie grant`: prints a broker user and its permissions for nats-server's configuration."""

import argparse
import json

from joulie_bus.errors import SettingsError
from joulie_bus.streams.roles import NAMED, Role, grant_of, inbox, permissions
from joulie_bus.streams.subjects import escape
from joulie_cli.wiring import Wiring

SETTINGS = ()
HEADER = """\
# For `users` of nats-server's configuration; add a password, an nkey or a certificate's name.
# The program that uses it needs NATS_INBOX={inbox}."""


def run(args: argparse.Namespace, _: Wiring) -> int:
    role, name = Role(args.role), args.name
    if name and role not in NAMED:
        named = " and ".join(NAMED)
        raise SettingsError([f"joulie grant {role} {name}: only {named} are granted by name"])
    user = f"{role}-{escape(name)}" if name else str(role)
    print(HEADER.format(inbox=inbox(role, name)))
    print(json.dumps({"user": user, "permissions": permissions(grant_of(role, name))}, indent=2))
    return 0
