"""Removes secrets from log lines, errors and printed settings.

Code that reads a secret setting never shows it. This module covers text that contains a secret: a
URL with a password or token, or a message of a library that quotes one.
"""

import re
from urllib.parse import unquote

HIDDEN = "(hidden)"
SHORTEST = 8  # a shorter secret may be part of an ordinary word
# The placeholder "user:password@host" in descriptions is not a secret.
_PASSWORD = re.compile(r"(://[^\s/@:'\"]*):(?!password@)[^\s/@'\"]*@")
_TOKEN = re.compile(r"((?:nats|tls|https?)://)[^\s/@:'\"]+@")
_PARAMETER = re.compile(
    r"([?&][\w-]*(?:password|passwd|token|secret|api[_-]?key|signature)[\w-]*=)[^&\s'\"]+",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(?:://[^\s/@:]*:|[?&]password=)([^\s/@&]+)(?:@|&|$)")
_secrets: dict[str, None] = {}  # in order of arrival


def remember(secret: str) -> None:
    """From now on the secret is hidden in all text, and of a URL its password, too: an error of the
    server may contain it."""
    for each in (secret, *map(unquote, _IN_URL.findall(secret))):
        if len(each) >= SHORTEST:
            _secrets[each] = None


def masked(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    text = _PASSWORD.sub(r"\1:***@", text)
    text = _TOKEN.sub(r"\1***@", text)
    return _PARAMETER.sub(r"\1***", text)
