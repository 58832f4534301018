"""A nats-server with a configuration of the test's own, and the keys and JWTs that it trusts."""

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]

from joulie_bus.broker.checksum import server_binary
from joulie_bus.runtime.ports import free_port


@contextlib.contextmanager
def serving(directory: Path, more: str, address: str = "127.0.0.1") -> Generator[str, None, None]:
    """A nats-server with these lines in its configuration; its URL."""
    config, log, port = directory / "nats.conf", directory / "nats.log", free_port()
    config.write_text(f'listen: "{address}:{port}"\n{more}\n')
    program = server_binary(os.environ.get("NATS_SERVER_BIN", ""))
    command = [program, "-c", str(config), "-l", str(log)]
    with subprocess.Popen(command) as server:
        try:
            deadline = time.monotonic() + 60
            while not (log.exists() and "Server is ready" in log.read_text()):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield f"nats://{address}:{port}"
        finally:
            server.kill()


class Key:
    """An nkey: of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.seed: str = nkeys.encode_seed(os.urandom(32), kind).decode()
        self.public = self._pair().public_key.decode()

    @classmethod
    def user(cls) -> "Key":
        return cls(nkeys.PREFIX_BYTE_USER)

    @classmethod
    def account(cls) -> "Key":
        return cls(nkeys.PREFIX_BYTE_ACCOUNT)

    def sign(self, message: bytes) -> bytes:
        return bytes(self._pair().sign(message))

    def _pair(self) -> Any:
        return nkeys.from_seed(bytearray(self.seed, "ascii"))  # which it may wipe


def token(issuer: Key, subject: Key, nats: Mapping[str, Any], **claims: object) -> str:
    """A NATS JWT: its id is a hash of its claims, its signature that of an nkey."""
    body = {"iss": issuer.public, "sub": subject.public, "iat": int(time.time()), **claims}
    body["nats"] = {**nats, "version": 2}
    body["jti"] = base64.b32encode(hashlib.sha256(_json(body)).digest()).decode().rstrip("=")
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = f"{_base64(_json(head))}.{_base64(_json(body))}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


UNLIMITED = {"subs": -1, "data": -1, "payload": -1}


class Operator:
    """One operator with one account, as a broker trusts it.

    `template` holds the permissions of users that the account's second key signs: those of a role.
    """

    def __init__(self, template: Mapping[str, Any] | None = None) -> None:
        self._key = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self._account, self._signer = Key.account(), Key.account()
        limits = dict.fromkeys((*UNLIMITED, "imports", "exports", "conn", "leaf"), -1)
        stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        account: dict[str, Any] = {
            "type": "account",
            "limits": {**limits, **stored, "wildcards": True},
        }
        if template is not None:
            role = {"kind": "user_scope", "key": self._signer.public, "role": "agent"}
            account["signing_keys"] = [{**role, "template": {**template, **UNLIMITED}}]
        self._operator_jwt = token(self._key, self._key, {"type": "operator"})
        self._account_jwt = token(self._key, self._account, account)

    def config(self) -> str:
        return (
            f"operator: {self._operator_jwt}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {self._account.public}: {self._account_jwt} }}"
        )

    def credentials(self, user: Key, seed: str = "", **claims: object) -> str:
        """What `nsc generate creds` prints."""
        return _creds(
            token(self._account, user, {"type": "user", **UNLIMITED}, **claims), user, seed
        )

    def templated(self, user: Key, name: str) -> str:
        """Of a user whose permissions are those of the template, by its name."""
        nats = {"type": "user", "issuer_account": self._account.public}
        return _creds(token(self._signer, user, nats, name=name), user)


def _creds(jwt: str, user: Key, seed: str = "") -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed or user.seed}\n------END USER NKEY SEED------\n"
    )
