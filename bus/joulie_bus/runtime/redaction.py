"""Takes secrets out of text for people: log lines, errors, what `joulie` prints of settings.

Settings that are secret are never shown by those that read them. This is for what carries one
along: a URL with a password or a token in it, or a message of a library that quotes one.
"""

import re

HIDDEN = "(hidden)"
SHORTEST = 8  # a shorter secret could be a part of any word
# What a description says of a URL ("user:password@host") is no secret.
_PASSWORD = re.compile(r"(://[^\s/@:'\"]*):(?!password@)[^\s/@'\"]*@")
_TOKEN = re.compile(r"((?:nats|tls|https?)://)[^\s/@:'\"]+@")
_PARAMETER = re.compile(
    r"([?&][\w-]*(?:password|passwd|token|secret|api[_-]?key|signature)[\w-]*=)[^&\s'\"]+",
    re.IGNORECASE,
)
_secrets: dict[str, None] = {}  # in the order in which they came


def remember(secret: str) -> None:
    """From now on it is hidden wherever it turns up."""
    if len(secret) >= SHORTEST:
        _secrets[secret] = None


def masked(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, HIDDEN)
    text = _PASSWORD.sub(r"\1:***@", text)
    text = _TOKEN.sub(r"\1***@", text)
    return _PARAMETER.sub(r"\1***", text)
