"""Writes the passwords of the broker's users from files into one that nats-server includes.

    python -m joulie_bus.broker.user_passwords /etc/joulie/users /etc/joulie/broker/users.conf

nats-server reads a password from its configuration or its environment. Descriptions of pods and
children of a process show an environment, so the chart has the Secret as files, one for each user,
and the configuration includes what this writes: one variable for each file.
"""

import json
import sys
from pathlib import Path

from joulie_bus.runtime.secret_files import write_private
from joulie_bus.runtime.secret_settings import secret_in

PREFIX = "NATS_"


def variables(directory: Path) -> str:
    """The lines of the configuration. Raises ValueError for a file without a usable password."""
    named = sorted(directory.glob(f"{PREFIX}*"))
    if not named:
        raise ValueError(f"{directory} holds no file named {PREFIX}ROLE")
    return "".join(f"{file.name}: {_quoted(file)}\n" for file in named)


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
        write_private(Path(sys.argv[2]), variables(Path(sys.argv[1])))
    except (OSError, ValueError) as problem:
        sys.exit(f"No passwords of the broker's users were written. {problem}")
