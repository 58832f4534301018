"""The settings of notifications."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from joulie_bus.core.http_head import is_loopback
from joulie_bus.runtime.settings import boolean, setting, text


def webhook(url: str) -> str:
    """https://HOST/PATH, or http for this machine"""
    if url:
        parts = urlsplit(url)
        is_plain = parts.hostname and parts.port != 0 and "@" not in parts.netloc
        if parts.scheme not in ("https", "http") or not is_plain:
            raise ValueError("not an address with https or http and without a password")
    return url


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    url: str = setting(
        webhook,
        "NOTIFY_URL",
        "",
        "The webhook that the console posts CloudEvents to; empty for none",
        secret=True,
    )
    token: str = setting(
        text, "NOTIFY_TOKEN", "", "The bearer token of the webhook's requests", secret=True
    )
    plain: bool = setting(
        boolean, "NOTIFY_PLAIN", "false", "Post without TLS beyond this machine, too"
    )

    def contradictions(self) -> list[str]:
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not self.plain and not is_loopback(parts.hostname or ""):
            return [
                "NOTIFY_URL: beyond loopback it needs https, as everyone on the way reads the "
                "events and the token; NOTIFY_PLAIN=true posts them anyway"
            ]
        return []
