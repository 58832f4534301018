"""Signed heads and the keys that verify them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from audit_kit import key_with_a_secret, signed_with_a_secret
from joulie_bus.errors import KeyIsSecret, KeyMismatch
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import size_of
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER, noon
from joulie_projections.decision_log.heads import (
    Signer,
    decode,
    encode,
    is_genuine,
    public_key,
)

RELEASED_KEY = "joulie-hmac-sha256\nelWhMfMAQch9LPk6P1F7lPTpmNnNt7StqmDztrR28I0=\n"
RELEASED_HEAD = (
    b'{"pos":7,"hash":"aGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGhoaGg="'
    b',"signed_at":1764072000000000000,"key_id":"hmac-68PVYqeuVtf7"'
    b',"signature":"pl6JtbFQ2ODTFrvbz6EUGtVg6xjsEfJG65BVwOEdLeA="}'
)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "signing.key")


def test_a_signed_head_is_genuine(signer: Signer) -> None:
    assert is_genuine(signer.sign(7, b"h" * 32, noon()), signer.public)


@pytest.mark.anyio
async def test_a_head_takes_about_330_bytes_of_its_stream(
    signer: Signer, connection: Connection
) -> None:
    head = encode(signer.sign(12_345_678, b"h" * 32, noon()))
    message = Message(CLUSTER.heads, "head:0123456789abcdef:12345678", head)
    async with Publisher.on(connection) as publisher:
        await publisher.publish([message])

    assert 300 < (await size_of(connection, Stream.HEADS)).bytes < 360


def test_a_head_is_not_genuine_for_another_key(signer: Signer, tmp_path: Path) -> None:
    other = Signer.of(tmp_path / "other.key")

    assert not is_genuine(signer.sign(7, b"h" * 32, noon()), other.public)


@pytest.mark.parametrize(
    "change",
    [{"pos": 8}, {"hash": b"x" * 32}, {"signed_at": noon(1)}, {"signature": bytes(64)}],
    ids=lambda change: next(iter(change)),
)
def test_a_head_that_was_changed_is_not_genuine(signer: Signer, change: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(signer.sign(7, b"h" * 32, noon()), **change)

    assert not is_genuine(changed, signer.public)


def test_the_private_key_is_readable_by_its_owner_alone(signer: Signer, tmp_path: Path) -> None:
    assert (tmp_path / "signing.key").stat().st_mode & 0o777 == 0o600


def test_the_key_is_created_once(signer: Signer, tmp_path: Path) -> None:
    again = Signer.of(tmp_path / "signing.key")

    assert again.key_id == signer.key_id
    assert is_genuine(again.sign(1, b"", noon()), signer.public)


def test_the_public_half_is_enough_to_verify(signer: Signer, tmp_path: Path) -> None:
    signer.publish(tmp_path / "public.pem")
    public = public_key(tmp_path / "public.pem")
    head = signer.sign(7, b"h" * 32, noon())

    assert is_genuine(head, public)
    assert head.key_id == public.newest.id
    assert b"PRIVATE" not in (tmp_path / "public.pem").read_bytes()


def test_a_head_is_encoded_and_decoded_unchanged(signer: Signer) -> None:
    head = signer.sign(7, b"h" * 32, noon())

    assert decode(encode(head)) == head


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = X25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key").write_bytes(secret)
    (tmp_path / "pub").write_bytes(public)

    with pytest.raises(KeyMismatch, match="another kind of key"):
        Signer.of(tmp_path / "key")
    with pytest.raises(KeyMismatch, match="another kind of key"):
        public_key(tmp_path / "pub")


# --- heads that versions up to 0.2.0 signed with a secret --------------------------------------


def test_a_head_that_was_signed_with_a_secret_is_verified_with_its_file(tmp_path: Path) -> None:
    key_with_a_secret(tmp_path / "head.key")
    head = signed_with_a_secret(tmp_path / "head.key", 7, b"h" * 32, noon())
    public = public_key(tmp_path / "head.pub")

    assert is_genuine(head, public)
    assert not is_genuine(msgspec.structs.replace(head, pos=8), public)


def test_a_released_head_that_was_signed_with_a_secret_is_genuine(tmp_path: Path) -> None:
    (tmp_path / "head.key").write_text(RELEASED_KEY)

    assert is_genuine(decode(RELEASED_HEAD), public_key(tmp_path / "head.pub"))


def test_a_head_is_not_genuine_for_another_secret(tmp_path: Path) -> None:
    for name in ("head.key", "other.key"):
        key_with_a_secret(tmp_path / name)
    head = signed_with_a_secret(tmp_path / "head.key", 7, b"h" * 32, noon())

    assert not is_genuine(head, public_key(tmp_path / "other.pub"))


def test_no_head_is_signed_with_a_secret(tmp_path: Path) -> None:
    key_with_a_secret(tmp_path / "head.key")

    with pytest.raises(KeyIsSecret, match="Nothing was signed"):
        Signer.of(tmp_path / "head.key")
