"""The console's settings. Beyond loopback the console requires a token or trusted proxies."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from joulie_bus.core.http_head import is_loopback
from joulie_bus.runtime.settings import HostPort, address, setting

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SHORTEST_TOKEN = 16
MAX_CLIENTS = 500  # clients of the stream at once
HEARTBEAT_S = 15.0  # of silence before a comment keeps proxies from closing the stream
MAX_BEHIND = 5000  # decisions after which a slow client is disconnected


def token_file(path: str) -> str:
    """a file with one line of at least 16 printable characters"""
    if path:
        read_token(path)
    return path


def read_token(path: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(getattr(error, "strerror", None) or str(error)) from error
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ValueError("the file has no such line")
    return token


class Proxies(NamedTuple):
    header: str
    networks: tuple[Network, ...]


def proxies(text: str) -> Proxies | None:
    """HEADER=ADDRESSES such as X-Forwarded-User=10.0.0.7,10.0.0.0/24; empty for none"""
    if not text:
        return None
    header, _, rest = (part.strip() for part in text.partition("="))
    if not all(part.isalnum() for part in header.split("-")):
        raise ValueError("no header name before =")
    named = [part.strip() for part in rest.split(",") if part.strip()]
    if not named:
        raise ValueError("no proxy addresses after =")
    return Proxies(header.lower(), tuple(map(ipaddress.ip_network, named)))


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings:
    addr: HostPort = setting(
        address, "CONSOLE_ADDR", "127.0.0.1:9870", "The address of the console for browsers"
    )
    token_file: str = setting(
        token_file, "CONSOLE_TOKEN_FILE", "", "The token that every request must carry"
    )
    proxies: Proxies | None = setting(
        proxies,
        "CONSOLE_PROXIES",
        "",
        "Proxies that authenticate the user, and the header with the user's name",
    )
    max_clients: int = MAX_CLIENTS
    heartbeat_s: float = HEARTBEAT_S
    max_behind: int = MAX_BEHIND

    @property
    def is_local(self) -> bool:
        return is_loopback(self.addr.host)

    def contradictions(self) -> list[str]:
        found = []
        if not (self.is_local or self.token_file or self.proxies):
            found.append(
                f"CONSOLE_ADDR={self.addr}: beyond loopback every client could read; set "
                "CONSOLE_TOKEN_FILE or CONSOLE_PROXIES"
            )
        return found
