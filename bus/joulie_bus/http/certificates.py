"""TLS certificates of a server, reloaded whenever a file changes, as rotation does it."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joulie_bus.core.certificate_names import is_client

POLL_S = 2.0


class Certificates:
    """PEM files. With a client CA, verbs require a client certificate; health probes do not.

    `client_names` are the clients that are answered; empty for all of the authority, which may sign
    for servers, other programs and other teams as well.
    """

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None,
        client_names: frozenset[str] = frozenset(),
        poll_s: float = POLL_S,
    ) -> None:
        self._client_names = client_names
        self._files = [file for file in (cert, key, client_ca) if file is not None]
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._poll_s = poll_s
        self._seen = self._state()

    def accepts(self, peer: Mapping[str, Any] | None) -> bool:
        """Whether requests of this client are answered; `peer` is its certificate, already checked
        against the authority."""
        return self._client_ca is None or is_client(peer, self._client_names)

    def context(self) -> ssl.SSLContext:
        """Raises OSError (SSLError is a subclass) for files that do not match."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            # Optional: the kubelet's probes have none. The app refuses verbs without one.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(self._client_ca)
        return context

    async def changed(self) -> None:
        """Returns once a file has changed."""
        while True:
            await asyncio.sleep(self._poll_s)
            now = self._state()
            if now != self._seen:
                self._seen = now
                return

    def _state(self) -> list[tuple[int, int, int] | None]:
        """A mounted secret changes by replacing a symbolic link, which `stat` follows."""
        return [_stat(file) for file in self._files]


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
