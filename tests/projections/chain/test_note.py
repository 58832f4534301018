"""Signed notes are read as they are written, and in no other form."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from joulie_projections.chain.note import (
    LOG_KEY,
    MAX_NOTE,
    MAX_PROOF_LINES,
    MAX_SIGNATURES,
    WITNESS_KEY,
    InclusionProof,
    NotANote,
    Signature,
    Submission,
    VerifierKey,
    checkpoint_of,
    cosignature,
    cosigned_text,
    parse_checkpoint,
    parse_signatures,
    unpacked,
)
from joulie_projections.chain.signed import raw_of

ROOT = bytes(range(32))
LINE = base64.b64encode(ROOT).decode()
SIGNATURE = Signature("w", b"\1\2\3\4", b"5")
PLAIN = checkpoint_of("log", 7, ROOT)
SECRET = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEY = VerifierKey("log", LOG_KEY, raw_of(SECRET.public_key()))
WITNESS = VerifierKey("w", WITNESS_KEY, raw_of(SECRET.public_key()))


def note(text: str) -> bytes:
    return f"{text}\n{SIGNATURE}\n".encode()


# --- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_has_an_extension_line_for_what_lies_before_its_tree() -> None:
    assert PLAIN.text == f"log\n7\n{LINE}\n".encode()
    assert checkpoint_of("log", 7, ROOT, ["x 1"]).text == f"log\n7\n{LINE}\nx 1\n".encode()


def test_a_checkpoint_is_read_as_it_is_written() -> None:
    for made in (PLAIN, checkpoint_of("log", 7, ROOT, ["x 1", "y"])):
        signed = made.with_signatures([SIGNATURE, SIGNATURE])

        assert signed.signatures == (SIGNATURE,)
        assert parse_checkpoint(signed.note) == signed


def test_the_tree_of_a_checkpoint_may_be_empty() -> None:
    assert parse_checkpoint(note(f"log\n0\n{LINE}\n")).size == 0


WRONG_CHECKPOINTS = {
    "no origin": f"\n7\n{LINE}\n",
    "no size": f"log\n\n{LINE}\n",
    "a size with a leading zero": f"log\n07\n{LINE}\n",
    "a negative size": f"log\n-7\n{LINE}\n",
    "a size beyond every log": f"log\n{'9' * 20}\n{LINE}\n",
    "a root of another length": f"log\n7\n{base64.b64encode(ROOT + b'x').decode()}\n",
    "a root that is not base64": f"log\n7\n{LINE[:-1]}\n",
    "two lines": "log\n7\n",
}


@pytest.mark.parametrize("text", WRONG_CHECKPOINTS.values(), ids=list(WRONG_CHECKPOINTS))
def test_a_checkpoint_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(NotANote):
        parse_checkpoint(note(text))


def test_a_note_without_a_blank_line_is_refused() -> None:
    with pytest.raises(NotANote):
        parse_checkpoint(f"log\n7\n{LINE}\n{SIGNATURE}\n".encode())


def test_a_note_may_be_as_long_as_its_limit() -> None:
    rest = MAX_NOTE - len(note(f"log\n7\n{LINE}\n\n"))

    assert parse_checkpoint(note(f"log\n7\n{LINE}\n{'x' * rest}\n")).size == 7
    with pytest.raises(NotANote, match="longer than 65536 bytes"):
        parse_checkpoint(note(f"log\n7\n{LINE}\n{'x' * (rest + 1)}\n"))


def test_a_note_has_as_many_signatures_as_its_limit() -> None:
    lines = f"{SIGNATURE}\n"

    assert len(parse_signatures(lines * MAX_SIGNATURES)) == MAX_SIGNATURES == 100
    with pytest.raises(NotANote, match="more than 100 signatures"):
        parse_signatures(lines * (MAX_SIGNATURES + 1))


@pytest.mark.parametrize(
    "line",
    [
        "",
        str(SIGNATURE)[2:],
        f"\u2014  {base64.b64encode(b'12345').decode()}",
        f"\u2014 w {base64.b64encode(b'1234').decode()}",
        "\u2014 w",
    ],
    ids=["nothing", "no dash", "no name", "no content", "no signature"],
)
def test_a_line_that_is_no_signature_is_refused(line: str) -> None:
    with pytest.raises(NotANote):
        parse_signatures(f"{line}\n")


def test_a_last_line_without_an_end_is_refused() -> None:
    with pytest.raises(NotANote, match="does not end"):
        parse_signatures(str(SIGNATURE))


@pytest.mark.parametrize("text", ["AB==", "AA", "AA==\n", "A-==", "AA== ", "\u00e9"])
def test_base64_in_another_spelling_is_refused(text: str) -> None:
    assert unpacked("AA==") == b"\0"
    with pytest.raises(NotANote, match="base64"):
        unpacked(text)


# --- keys and their signatures ------------------------------------------------------------------


def test_a_verifier_key_has_the_form_that_other_programs_read() -> None:
    """The vector of golang.org/x/mod/sumdb/note."""
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    key = VerifierKey.parse(text)

    assert (key.name, key.kind, len(key.raw), key.hash.hex()) == ("PeterNeumann", 1, 32, "c74f20a3")
    assert str(key) == text


def spelled(name: str, kind: int, raw: bytes) -> str:
    return str(VerifierKey(name, kind, raw))


@pytest.mark.parametrize(
    "text",
    [
        spelled("", LOG_KEY, ROOT),
        spelled("two words", LOG_KEY, ROOT),
        spelled("log", LOG_KEY, ROOT[1:]),
        spelled("log", LOG_KEY, ROOT + b"x"),
        spelled("log", 2, ROOT),
        spelled("other", LOG_KEY, ROOT).replace("other", "log"),
    ],
    ids=["no name", "a space", "a short key", "a long key", "another kind", "another name"],
)
def test_a_verifier_key_of_another_form_is_refused(text: str) -> None:
    for kind in (LOG_KEY, WITNESS_KEY):
        assert VerifierKey.parse(spelled("log", kind, ROOT)).kind == kind
    with pytest.raises(NotANote, match="verifier key"):
        VerifierKey.parse(text)


def test_a_checkpoint_is_signed_by_the_key_of_its_signature_alone() -> None:
    mine = Signature(KEY.name, KEY.hash, SECRET.sign(PLAIN.text))
    signed = PLAIN.with_signatures([SIGNATURE, mine])

    assert signed.is_signed_by(KEY)
    assert not signed.is_signed_by(KEY._replace(name="other"))
    assert not PLAIN.is_signed_by(KEY)
    assert not PLAIN.with_signatures([mine._replace(content=bytes(64))]).is_signed_by(KEY)


def test_a_cosignature_carries_its_time_and_the_newest_counts() -> None:
    cosigned = [
        cosignature(WITNESS, time, SECRET.sign(cosigned_text(PLAIN.text, time)))
        for time in (1_700_000_000, 1_800_000_000, 1_750_000_000)
    ]
    forged = cosigned[0]._replace(content=(2**33).to_bytes(8, "big") + cosigned[0].content[8:])

    assert cosigned_text(b"text\n", 12) == b"cosignature/v1\ntime 12\ntext\n"
    assert PLAIN.with_signatures(cosigned).cosigned_at(WITNESS) == 1_800_000_000
    assert PLAIN.with_signatures([forged, cosigned[2]]).cosigned_at(WITNESS) == 1_750_000_000
    assert PLAIN.with_signatures([forged]).cosigned_at(WITNESS) is None


# --- submissions and proofs ---------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 1, MAX_PROOF_LINES])
def test_a_submission_is_read_as_it_is_written(lines: int) -> None:
    made = Submission(3, [ROOT] * lines, PLAIN.with_signatures([SIGNATURE]))

    assert Submission.parse(made.body) == made


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("new 3\n", "the first line is not"),
        ("3\n", "the first line is not"),
        ("old 03\n", "the first line is not"),
        ("old 3\n" + f"{LINE}\n" * (MAX_PROOF_LINES + 1), "more than 63 lines of proof"),
        (f"old 3\n{base64.b64encode(ROOT[1:]).decode()}\n", "is not a hash"),
    ],
)
def test_a_submission_of_another_form_is_refused(head: str, what: str) -> None:
    with pytest.raises(NotANote, match=what):
        Submission.parse(f"{head}\n".encode() + PLAIN.with_signatures([SIGNATURE]).note)


def test_a_proof_has_the_form_of_the_specification() -> None:
    checkpoint = PLAIN.with_signatures([SIGNATURE])
    proof = InclusionProof(4, b"\0", [ROOT, ROOT], checkpoint)

    assert proof.text == (
        f"c2sp.org/tlog-proof@v1\nextra AA==\nindex 4\n{LINE}\n{LINE}\n\n"
        f"log\n7\n{LINE}\n\n{SIGNATURE}\n"
    )
