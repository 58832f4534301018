"""Writes the passwords of the broker's users from files into one that nats-server includes.

    python -m joulie_bus.broker.user_passwords /etc/joulie/users /etc/joulie/broker/users.conf
    python -m joulie_bus.broker.user_passwords USERS CONF /etc/joulie/issuer/issuer.key

nats-server reads a password from its configuration or its environment. Descriptions of pods and
children of a process show an environment, so the chart has the Secret as files, one for each user,
and the configuration includes what this writes: one variable for each file. With the issuer of the
auth callout also its public half, so that nats-server itself never sees the key.
"""

import json
import sys
from pathlib import Path

from joulie_bus.broker.callout import SERVICES, Issuer
from joulie_bus.runtime.secret_files import secret_in, write_private

PREFIX = "NATS_"
# Of the auth callout: nats-server refuses a variable that nothing uses.
OF_CALLOUT = frozenset(f"{PREFIX}{user.upper()}" for user in SERVICES)


def variables(directory: Path, issuer: Path | None = None) -> str:
    """The lines of the configuration. Raises ValueError for a file without a usable password."""
    named = sorted(directory.glob(f"{PREFIX}*"))
    if not named:
        raise ValueError(f"{directory} holds no file named {PREFIX}ROLE")
    used = [file for file in named if issuer or file.name not in OF_CALLOUT]
    text = "".join(f"{file.name}: {_quoted(file)}\n" for file in used)
    return text + (f"{PREFIX}ISSUER: {_public_half(issuer)}\n" if issuer else "")


def _public_half(issuer: Path) -> str:
    try:
        return json.dumps(Issuer.of(issuer.read_text()).public)
    except ValueError as error:
        raise ValueError(f"{issuer}: {error}") from error


def _quoted(file: Path) -> str:
    try:
        password = secret_in(str(file))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if not password.isprintable():
        raise ValueError(f"{file}: a password of printable characters is expected")
    return json.dumps(password, ensure_ascii=False)


if __name__ == "__main__":
    try:
        _, users, written, *issuer = sys.argv
        write_private(Path(written), variables(Path(users), *map(Path, issuer)))
    except (OSError, ValueError) as problem:
        sys.exit(f"No passwords of the broker's users were written. {problem}")
