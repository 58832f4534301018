"""The broker's auth callout: what nats-server asks about a client, and the answer that it takes.

nats-server asks a service that is a user of an account of its own: the signer. An answer is a JWT
that the issuer has signed; it holds the JWT of the user, with account and permissions, or an error.
The issuer can let a client in as any user of any account, so the signer has that key and nothing
else: it asks another service of the account, `joulie callout`, whose token the client showed.
https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_callout
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from joulie_bus.streams.roles import Grant, permissions

ASKS = "$SYS.REQ.USER.AUTH"
REVIEW = "joulie.identities.review"  # the signer's question: whose token is it?
ACCOUNT, REVIEWER, SIGNER = "JOULIE_IDENTITIES", "callout", "signer"
SERVICES = (REVIEWER, SIGNER)  # the users of the account
NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}
_SEED, _ACCOUNT, _USER = 18 << 3, 0, 20 << 3  # the prefixes of nkeys
_RAW = 32
PATIENCE_S = 15  # of the broker: all agents at once wait for their reviews


class Asked(NamedTuple):
    """A client that wants to connect."""

    server: str  # the id of the server, which alone takes the answer
    user: str  # the key that the server made for this connection
    token: str
    name: str  # as the client calls itself
    address: str  # of the client, as the server sees it


class Issuer:
    """The key that signs users. Its public half is in the configuration of the broker."""

    def __init__(self, raw: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(raw)
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _written(bytes([_ACCOUNT]) + public)
        self.seed = _written(bytes([_SEED | (_ACCOUNT >> 5), (_ACCOUNT & 31) << 3]) + raw)

    @classmethod
    def new(cls) -> "Issuer":
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def of(cls, seed: str) -> "Issuer":
        """From an nkey seed of an account, or an Ed25519 key as PEM, which helm makes. Raises
        ValueError for another text."""
        if "-----" in seed:
            return cls(_raw_of_pem(seed.encode()))
        raw = _bytes_of(seed.strip())
        prefix = bytes([_SEED | (_ACCOUNT >> 5), (_ACCOUNT & 31) << 3])
        if len(raw) != len(prefix) + _RAW or not raw.startswith(prefix):
            raise ValueError("an nkey seed of an account (SA...) is expected")
        return cls(raw[len(prefix) :])

    def signed(self, claims: Mapping[str, Any]) -> str:
        """A JWT as nats-server reads it: its id is a hash of its claims."""
        body = {**claims, "iss": self.public}
        digest = hashlib.sha256(msgspec.json.encode(body)).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_base64(msgspec.json.encode(head))}.{_base64(msgspec.json.encode(body))}"
        return f"{text}.{_base64(self._key.sign(text.encode()))}"


def asked_by(data: bytes) -> Asked:
    """Raises ValueError. The signature is not looked at: the broker alone may publish here."""
    try:
        claims = data.decode().split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        found = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Request).nats
    except (IndexError, UnicodeDecodeError, binascii.Error, msgspec.DecodeError) as error:
        raise ValueError(f"no request of a broker: {error}") from error
    return Asked(
        found.server_id.id,
        found.user_nkey,
        found.connect_opts.auth_token,
        found.connect_opts.name[:256],
        found.client_info.host,
    )


class _Server(msgspec.Struct):
    id: str


class _Connect(msgspec.Struct):
    auth_token: str = ""
    name: str = ""


class _Client(msgspec.Struct):
    host: str = ""


class _Body(msgspec.Struct):
    server_id: _Server
    user_nkey: str
    connect_opts: _Connect
    client_info: _Client = msgspec.field(default_factory=_Client)


class _Request(msgspec.Struct):
    nats: _Body


class Admitted(NamedTuple):
    """What a client may do, and until when."""

    name: str
    account: str
    grant: Grant
    until_s: int  # the broker then ends the connection, and the client shows its credential again


def admitting(issuer: Issuer, asked: Asked, admitted: Admitted, now_s: int) -> bytes:
    """The answer that lets a client in."""
    rights = permissions(admitted.grant)
    publish = rights["publish"]
    user = issuer.signed(
        {
            "sub": asked.user,
            "name": admitted.name,
            "aud": admitted.account,
            "iat": now_s,
            "exp": admitted.until_s,
            "nats": {
                "type": "user",
                "version": 2,
                "pub": publish if isinstance(publish, dict) else {"allow": publish},
                "sub": {"allow": rights["subscribe"]},
                **NO_LIMIT,
            },
        }
    )
    return _answer(issuer, asked, {"jwt": user}, now_s)


def refusing(issuer: Issuer, asked: Asked, why: str, now_s: int) -> bytes:
    """The answer that keeps a client out; the broker writes the reason to its log."""
    return _answer(issuer, asked, {"error": why}, now_s)


def _answer(issuer: Issuer, asked: Asked, what: Mapping[str, str], now_s: int) -> bytes:
    nats = {**what, "type": "authorization_response", "version": 2}
    claims = {"sub": asked.user, "aud": asked.server, "iat": now_s, "nats": nats}
    return issuer.signed(claims).encode()


def configured(issuer: str, users: Iterable[str]) -> str:
    """The lines of nats-server's configuration. `users` have passwords in it; the signer is asked
    about all other clients."""
    names = msgspec.json.encode(sorted({*users, *SERVICES})).decode()
    return (
        f'authorization {{ auth_callout {{ issuer: "{issuer}", account: {ACCOUNT}, '
        f"auth_users: {names} }}, timeout: {PATIENCE_S} }}"
    )


def account(passwords: Mapping[str, str]) -> dict[str, Any]:
    """The account of both services. The signer alone hears what the broker asks, and answers."""
    inbox = f"_INBOX_{SIGNER}.>"
    rights = {
        REVIEWER: {"publish": [inbox], "subscribe": [REVIEW]},
        SIGNER: {"publish": ["$SYS._INBOX.>", REVIEW], "subscribe": [ASKS, inbox]},
    }
    return {
        "users": [
            {"user": user, "password": passwords[user], "permissions": rights[user]}
            for user in SERVICES
        ]
    }


def _written(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _bytes_of(text: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error as error:
        raise ValueError("an nkey seed of an account (SA...) is expected") from error
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("an nkey seed with a mistake in it (its checksum is wrong)")
    return raw[:-2]


def _raw_of_pem(text: bytes) -> bytes:
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("an Ed25519 key without a passphrase is expected in the PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("another key than Ed25519 is in the PEM")
    return key.private_bytes_raw()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
