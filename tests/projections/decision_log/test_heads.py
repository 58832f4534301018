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

from joulie_bus.errors import KeyMismatch
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import size_of
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER, noon
from joulie_projections.decision_log.heads import (
    ED25519,
    HMAC,
    Signer,
    decode,
    encode,
    is_genuine,
    public_key,
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


# --- a secret instead of a pair of keys -------------------------------------------------------


@pytest.fixture
def hmac_signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "head.key", HMAC)


def test_a_secret_signs_and_verifies_without_a_public_half(
    hmac_signer: Signer, tmp_path: Path
) -> None:
    hmac_signer.publish(tmp_path / "head.pub")
    head = hmac_signer.sign(7, b"h" * 32, noon())

    assert not (tmp_path / "head.pub").exists()
    assert is_genuine(head, public_key(tmp_path / "head.pub"))
    assert (tmp_path / "head.key").stat().st_mode & 0o777 == 0o600


def test_a_head_is_not_genuine_for_another_secret(hmac_signer: Signer, tmp_path: Path) -> None:
    other = Signer.of(tmp_path / "other.key", HMAC)
    head = hmac_signer.sign(7, b"h" * 32, noon())

    assert not is_genuine(head, other.public)
    assert not is_genuine(msgspec.structs.replace(head, pos=8), hmac_signer.public)
    assert hmac_signer.key_id != other.key_id


@pytest.mark.parametrize(("made", "asked"), [(HMAC, ED25519), (ED25519, HMAC)])
def test_the_kind_of_signature_of_a_log_cannot_change(
    tmp_path: Path, made: str, asked: str
) -> None:
    Signer.of(tmp_path / "head.key", made)

    with pytest.raises(KeyMismatch, match=f"another kind of key than {asked}: {made}"):
        Signer.of(tmp_path / "head.key", asked)
