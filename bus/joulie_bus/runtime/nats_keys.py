"""Checks files with a NATS seed or credentials before nats-py reads them.

nats-py never returns from a file without a JWT, and reports a mistyped seed only as a wrong length.
No message of this module shows the content of a file.
"""

import base64
import binascii
import re

USER_SEED = b"SU"
_SEED = re.compile(r"S[A-Z][A-Z2-7]{56}")
_NEARLY = re.compile(r"S[A-Z][A-Z2-7]{10,}")  # truncated, or with an extra character
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


def looks_secret(text: str) -> bool:
    """Parse errors must not show a seed or JWT either."""
    return bool(_NEARLY.search(text) or text.startswith("eyJ"))


def check_seed(text: str) -> None:
    """Raises ValueError unless the text is the seed of a user and nothing else."""
    seed = text.strip()
    if not _SEED.fullmatch(seed):
        raise ValueError("not an nkey seed")
    raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("an nkey seed with a mistake in it (its checksum is wrong)")
    if not seed.encode().startswith(USER_SEED):
        raise ValueError("an nkey seed, but not a user's (those begin with SU)")


def is_credentials(text: str) -> bool:
    """Or a mere seed? Credentials are between marked lines, and a seed is one word."""
    return "-----" in text


def is_token(text: str) -> bool:
    """Such as that of a pod: a JWT alone, for the broker's auth callout."""
    return bool(_JWT.fullmatch(text.strip()))


def check_credentials(text: str) -> None:
    """Raises ValueError unless the text is a JWT and a user's seed in the format of nsc."""
    jwt = _line_after("BEGIN NATS USER JWT", text)
    if not _JWT.fullmatch(jwt):
        raise ValueError("credentials without a JWT on the line after its BEGIN")
    check_seed(_line_after("BEGIN USER NKEY SEED", text))


def _line_after(mark: str, text: str) -> str:
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if mark in line), None)
    if at is None or at + 1 >= len(lines):
        raise ValueError(f"not NATS credentials ({mark} is missing)")
    return lines[at + 1]
