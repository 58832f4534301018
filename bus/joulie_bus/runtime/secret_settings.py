"""Secrets of the settings in files: `NATS_PASSWORD_FILE` names the file with NATS_PASSWORD.

The environment of a process is in the descriptions of containers and pods, and every child inherits
it. A file is read once, at start.
"""

import os
import stat

SUFFIX = "_FILE"
_MOST_BYTES = 65_536


def secret_in(path: str) -> str:
    """The text of the file, without the end of its last line. Links are followed: a mounted Secret
    consists of them."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            content = file.read(_MOST_BYTES + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no text") from error
    if not text or len(content) > _MOST_BYTES:
        raise ValueError(f"it holds {len(content)} bytes" if text else "it is empty")
    return text


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
