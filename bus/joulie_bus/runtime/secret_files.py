"""Files that only their owner may read: passwords, keys, and what names them."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulie_bus.runtime.logging import get_logger

OTHERS = 0o077
log = get_logger("files")


def write_private(path: Path, text: str) -> None:
    """In place of what was there; whole or, on a full disk, not at all."""
    with _written(path, text) as fresh:
        fresh.replace(path)


def keep_private(path: Path, text: str) -> None:
    """If nothing is there yet: of several who keep something at once, the first one stays."""
    with _written(path, text) as fresh, suppress(FileExistsError):
        os.link(fresh, path)


@contextmanager
def _written(path: Path, text: str) -> Generator[Path]:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(fresh, "x", opener=private) as file:
            file.write(text)
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def make_private(path: Path) -> None:
    """An empty file if there is none yet; for its owner alone either way."""
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))
    tighten(path)


def tighten(*paths: Path) -> None:
    """Takes from files that are there what others may do with them; says so where it cannot."""
    for path in paths:
        try:
            mode = path.stat().st_mode
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS & 0o7777)
                log.info("made_private", file=str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            why = error.strerror or str(error)
            log.warning(
                "not_private", file=str(path), why=why, what="others may read it; chmod 600"
            )


def private(path: str, flags: int) -> int:
    """Opens what it makes for its owner alone; for `open`."""
    return os.open(path, flags, 0o600)
