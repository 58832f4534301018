"""Is a file a NATS seed, or credentials? Looked at before nats-py does, which says less of it.

nats-py waits for ever on a file without a JWT, and tells a mistyped seed by a wrong length alone.
No message of this module shows what a file holds.
"""

import base64
import binascii
import re

USER_SEED = b"SU"
_SEED = re.compile(r"S[A-Z][A-Z2-7]{56}")
_NEARLY = re.compile(r"S[A-Z][A-Z2-7]{10,}")  # cut off, or with a character too many
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


def looks_secret(text: str) -> bool:
    """A seed or a JWT where something else belongs must not be shown either."""
    return bool(_NEARLY.search(text) or text.startswith("eyJ"))


def check_seed(text: str) -> None:
    """Raises ValueError unless it is the seed of a user, and nothing besides."""
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


def check_credentials(text: str) -> None:
    """Raises ValueError unless it is a JWT and a user's seed, between the lines that nsc writes."""
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
