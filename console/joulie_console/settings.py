"""The console's settings. What would open it to strangers stops the start instead."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from joulie_bus.runtime.http_head import host_names, is_loopback
from joulie_bus.runtime.settings import HostPort, address, integer, setting, some_time

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SHORTEST_TOKEN = 16


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
        raise ValueError("not such a file")
    return token


def header_name(text: str) -> str:
    """the name of an HTTP header, such as X-Forwarded-User"""
    if text and not all(part.isalnum() for part in text.split("-")):
        raise ValueError("not a header's name")
    return text.lower()


def networks(text: str) -> tuple[Network, ...]:
    """addresses or networks such as 10.0.0.7 or 10.0.0.0/24, with commas between"""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings:
    addr: HostPort = setting(
        address, "CONSOLE_ADDR", "127.0.0.1:9870", "Where people's browsers reach the console"
    )
    token_file: str = setting(
        token_file, "CONSOLE_TOKEN_FILE", "", "The token that every question must bring"
    )
    proxy_header: str = setting(
        header_name,
        "CONSOLE_PROXY_HEADER",
        "",
        "Header in which a proxy that has checked a user names it",
    )
    proxies: tuple[Network, ...] = setting(
        networks, "CONSOLE_PROXIES", "", "From where that header is believed"
    )
    hosts: tuple[str, ...] = setting(
        host_names,
        "CONSOLE_HOSTS",
        "",
        "Names besides localhost that a console without a token answers",
    )
    listeners: int = setting(
        integer(1, 10_000), "CONSOLE_LISTENERS", "500", "Listeners of the stream at once"
    )
    heartbeat_s: float = setting(
        some_time, "CONSOLE_HEARTBEAT", "15s", "Longest silence of the stream"
    )
    behind: int = setting(
        integer(1), "CONSOLE_BEHIND", "5000", "Decisions that a listener may be behind"
    )

    @property
    def is_local(self) -> bool:
        return is_loopback(self.addr.host)

    def contradictions(self) -> list[str]:
        found = []
        if bool(self.proxy_header) != bool(self.proxies):
            found.append(
                "CONSOLE_PROXY_HEADER and CONSOLE_PROXIES: a header is believed from named "
                "proxies only; give both or none"
            )
        if not (self.is_local or self.token_file or (self.proxy_header and self.proxies)):
            found.append(
                f"CONSOLE_ADDR={self.addr}: beyond this machine everybody could look; give "
                "CONSOLE_TOKEN_FILE, or CONSOLE_PROXY_HEADER with CONSOLE_PROXIES"
            )
        return found
