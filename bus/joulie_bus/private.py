"""Files that only their owner may read: passwords, keys, and what names them."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


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


def private(path: str, flags: int) -> int:
    """Opens what it makes for its owner alone; for `open`."""
    return os.open(path, flags, 0o600)
