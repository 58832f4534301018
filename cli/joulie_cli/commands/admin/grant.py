"""print accounts and users of the broker for nats-server's configuration."""

import argparse

from joulie_cli.command_line.commands import Program

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


def program() -> Program:
    from joulie_cli.admin import grant

    return grant
