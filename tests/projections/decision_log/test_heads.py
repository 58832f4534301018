"""Signed heads and the keys that verify them."""

from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bus_kit import CLUSTER, noon
from joulie_bus.errors import KeyMismatch
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import size_of
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import CHECKPOINT, Commitment, Head, statement_in
from joulie_projections.decision_log.heads import (
    Signer,
    decode,
    encode,
    is_genuine,
    public_key,
)
from joulie_projections.fold.commit import Input
from signed_heads import head_at, with_other_signature

FACTS = tuple(stream for stream in Stream if stream is not Stream.HEADS)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "signing.key")


def test_a_signed_head_is_genuine(signer: Signer) -> None:
    assert is_genuine(head_at(signer, 7, b"h" * 32, noon()), signer.public)


@pytest.mark.anyio
async def test_a_head_takes_about_800_bytes_of_its_stream(
    signer: Signer, connection: Connection
) -> None:
    read = {stream: Input("2026-11-26T14:03:22.123456789Z", 10**8, bytes(32)) for stream in FACTS}
    texts = {"manifest": bytes(32), "messages": bytes(32), "incarnation": "0123456789abcdef"}
    claims = {**texts, "position": 10**9, "read": read}
    head = encode(head_at(signer, 12_345_678, bytes(32), noon(), **claims))
    message = Message(CLUSTER.heads, "head:0123456789abcdef:12345678", head)
    async with Publisher.on(connection) as publisher:
        await publisher.publish([message])

    assert 780 < (await size_of(connection, Stream.HEADS)).bytes < 830


def test_a_head_is_not_genuine_for_another_key(signer: Signer, tmp_path: Path) -> None:
    other = Signer.of(tmp_path / "other.key")

    assert not is_genuine(head_at(signer, 7, b"h" * 32, noon()), other.public)


@pytest.mark.parametrize(
    "line", ["joulie/", "7", "entry", "time", "key", "incarnation", "facts", "read", "messages"]
)
def test_a_head_with_another_value_in_any_line_is_not_genuine(signer: Signer, line: str) -> None:
    read = {Stream.DEC: Input("then", 3, b"d")}
    claims = {"position": 9, "manifest": b"m", "messages": b"x", "incarnation": "i"}
    lines = head_at(signer, 7, b"h" * 32, noon(), read=read, **claims).note.split("\n")
    [at] = [number for number, each in enumerate(lines[:-2]) if each.startswith(line)]
    changed = {"7": "8", "joulie/": "joulie/other", "facts": "facts 8 bQ=="}
    changed |= {"read": "read JOULIE_DEC 4 ZA== then"}
    lines[at] = changed.get(line, lines[at].split(" ")[0] + " 8888")

    assert not is_genuine(Head(note="\n".join(lines)), signer.public)


def test_a_head_with_another_signature_is_not_genuine(signer: Signer) -> None:
    assert not is_genuine(with_other_signature(head_at(signer, 7, b"h" * 32)), signer.public)


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("nothing", id="nothing"),
        pytest.param("joulie/x\n7\n{root}\n\n{signed}", id="no entry, time and key"),
        pytest.param(
            "joulie/x\n7\n{root}\nentry {root}\nentry {root}\ntime 1\nkey k\n\n{signed}",
            id="two entries",
        ),
        pytest.param(
            "joulie/x\n7\n{root}\nentry {root}\ntime -1\nkey k\n\n{signed}", id="a time before 0"
        ),
        pytest.param(
            "joulie/x\n7\n{root}\nentry {root}\ntime 1\nkey k\nread OTHER 1\n\n{signed}",
            id="another stream",
        ),
    ],
)
def test_what_is_no_head_is_not_decoded(note: str) -> None:
    signed = "\u2014 joulie/x AAAAAAAA"
    text = note.format(root="A" * 43 + "=", signed=signed) + "\n"

    assert statement_in(msgspec.json.encode({"format": CHECKPOINT, "note": text})) is None


def test_a_head_says_what_was_signed(signer: Signer) -> None:
    read = {Stream.DEC: Input("life 1", 3, b"d" * 32), Stream.TEL: Input("", 9)}
    said = Commitment(7, b"r" * 32, b"h" * 32, noon(), "inc", 12, b"m", read, b"x", b"q")

    assert decode(encode(signer.sign(said))).commitment == said


def test_the_private_key_is_readable_by_its_owner_alone(signer: Signer, tmp_path: Path) -> None:
    assert (tmp_path / "signing.key").stat().st_mode & 0o777 == 0o600


def test_the_key_is_created_once(signer: Signer, tmp_path: Path) -> None:
    again = Signer.of(tmp_path / "signing.key")

    assert again.key_id == signer.key_id
    assert is_genuine(head_at(again, 1, b"", noon()), signer.public)


def test_the_public_half_is_enough_to_verify(signer: Signer, tmp_path: Path) -> None:
    signer.publish(tmp_path / "public.pem")
    public = public_key(tmp_path / "public.pem")
    head = head_at(signer, 7, b"h" * 32, noon())

    assert is_genuine(head, public)
    assert head.key_id == public.newest.id
    assert b"PRIVATE" not in (tmp_path / "public.pem").read_bytes()


def test_a_head_is_encoded_and_decoded_unchanged(signer: Signer) -> None:
    head = head_at(signer, 7, b"h" * 32, noon())

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
