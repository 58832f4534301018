"""The extender's certificates: read again whenever a file changes, as rotation does it."""

import asyncio
import ssl
from pathlib import Path

LOOK_EVERY_S = 2.0


class Certificates:
    """PEM files. With a CA for clients, verbs want a certificate of theirs; health does not."""

    def __init__(
        self, cert: Path, key: Path, client_ca: Path | None, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._files = [file for file in (cert, key, client_ca) if file is not None]
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._look_every_s = look_every_s
        self._seen = self._state()

    @property
    def wants_clients_own(self) -> bool:
        return self._client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Raises OSError (SSLError is one) for files that do not go together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            # Optional: the kubelet's probes have none. The app refuses verbs without one.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(self._client_ca)
        return context

    async def changed(self) -> None:
        """Returns once some file is not the one it was."""
        while True:
            await asyncio.sleep(self._look_every_s)
            now = self._state()
            if now != self._seen:
                self._seen = now
                return

    def _state(self) -> list[tuple[int, int, int] | None]:
        """A secret that is mounted changes by a link: `stat` follows it."""
        return [_stat(file) for file in self._files]


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
