"""A witness answers as C2SP's tlog-witness describes it."""

import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from joulie_bus.runtime.settings import HostPort
from joulie_projections.chain.merkle import Frontier, consistency
from joulie_projections.chain.note import (
    LOG_KEY,
    LogCheckpoint,
    NotANote,
    Signature,
    Submission,
    VerifierKey,
    checkpoint_of,
    parse_checkpoint,
    parse_signatures,
)
from joulie_projections.decision_log.heads import Signer
from joulie_projections.witness.asking import witness_place
from joulie_projections.witness.cosigner import Witness, witness_of
from joulie_projections.witness.seen import FILE, Seen
from joulie_projections.witness.server import MAX_BODY, bound

RECORDS = [bytes([at]) * 32 for at in range(20)]
ORIGIN = "example.com/log"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.of(tmp_path / "head.key")


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return witness_of(tmp_path / "w", "w.example.com")


def log_key(signer: Signer) -> VerifierKey:
    return VerifierKey(ORIGIN, LOG_KEY, signer.raw)


def signed(signer: Signer, size: int, records: list[bytes] = RECORDS) -> LogCheckpoint:
    made = checkpoint_of(ORIGIN, size, subtree(0, size, records))
    key = log_key(signer)
    return made.with_signatures([Signature(ORIGIN, key.hash, signer.signature(made.text))])


def subtree(first: int, last: int, records: list[bytes] = RECORDS) -> bytes:
    made = Frontier()
    made.extend(records[first:last])
    return made.root


def extending(signer: Signer, old: int, size: int, records: list[bytes] = RECORDS) -> Submission:
    proof = consistency(lambda first, last: subtree(first, last, records), old, size)
    return Submission(old, proof, signed(signer, size, records))


@contextmanager
def serving(tmp_path: Path, witness: Witness, *logs: VerifierKey) -> Generator[int]:
    seen = Seen(tmp_path / "w" / FILE, logs)
    with bound(HostPort("127.0.0.1", 0), witness, seen) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def post(port: int, body: bytes, path: str = "/add-checkpoint") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, body)
    reply = connection.getresponse()
    return reply.status, reply.headers["Content-Type"], reply.read()


def test_a_checkpoint_that_extends_what_was_seen_is_cosigned(
    tmp_path: Path, signer: Signer, witness: Witness
) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        for old, size in ((0, 7), (7, 7), (7, 12), (12, 20)):
            submission = extending(signer, old, size)
            status, _, body = post(port, submission.body)

            made = submission.checkpoint.with_signatures(parse_signatures(body.decode()))
            assert status == 200
            assert made.cosigned_at(witness.key) is not None


def test_another_old_size_is_answered_with_the_size_that_was_seen(
    tmp_path: Path, signer: Signer, witness: Witness
) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        post(port, extending(signer, 0, 12).body)

        for old, size in ((0, 20), (7, 20), (7, 9)):
            assert post(port, extending(signer, old, size).body) == (
                409,
                "text/x.tlog.size",
                b"12\n",
            )


def test_what_was_seen_outlives_the_process(
    tmp_path: Path, signer: Signer, witness: Witness
) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        post(port, extending(signer, 0, 12).body)
    again = witness_of(tmp_path / "w", "another name")

    with serving(tmp_path, again, log_key(signer)) as port:
        assert post(port, extending(signer, 0, 20).body)[2] == b"12\n"
    assert again.key == witness.key


def test_a_fork_is_refused(tmp_path: Path, signer: Signer, witness: Witness) -> None:
    forked = [*RECORDS[:9], b"another", *RECORDS[10:]]
    with serving(tmp_path, witness, log_key(signer)) as port:
        post(port, extending(signer, 0, 12).body)

        assert post(port, extending(signer, 12, 20, forked).body)[0] == 422
        assert post(port, extending(signer, 12, 12, forked).body)[0] == 409
        assert post(port, extending(signer, 12, 20).body)[0] == 200


def test_only_known_logs_and_their_keys_are_cosigned(
    tmp_path: Path, signer: Signer, witness: Witness
) -> None:
    stranger = Signer.of(tmp_path / "stranger.key")
    with serving(tmp_path, witness, log_key(signer)) as port:
        unknown = signed(signer, 7)._replace(origin="x", text=b"x\n7\n" + b"A" * 43 + b"=\n")

        assert post(port, extending(stranger, 0, 7).body)[0] == 403
        assert post(port, Submission(0, [], unknown).body)[0] == 404
        assert post(port, Submission(9, [], signed(signer, 7)).body)[0] == 400
        assert post(port, extending(signer, 0, 7).body, "/")[0] == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"old 0\n", b"old 00\n\n", b"old -1\n\nx\n", b"old 1\nnot base64\n\no\n1\nA\n\n",
     b"\xff\xfe\n\n", b"old 0\n" + b"A\n" * 64 + b"\n"],
)  # fmt: skip
def test_a_body_of_another_form_is_refused(
    tmp_path: Path, signer: Signer, witness: Witness, body: bytes
) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        assert post(port, body)[0] == 400


def test_a_body_without_end_is_refused(tmp_path: Path, signer: Signer, witness: Witness) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.putrequest("POST", "/add-checkpoint")
        connection.putheader("Content-Length", str(MAX_BODY + 1))
        connection.endheaders()

        assert connection.getresponse().status == 413


def test_a_verifier_key_is_read_as_it_is_written(signer: Signer) -> None:
    key = log_key(signer)

    assert VerifierKey.parse(str(key)) == key
    for wrong in ("", "a+b", f"{key}x", f"other{str(key)[11:]}"):
        with pytest.raises(NotANote):
            VerifierKey.parse(wrong)


def test_the_checkpoint_of_the_specification_is_read() -> None:
    note = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "\u2014 example.com/behind-the-sofa "
        "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/"
        "Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    ).encode()

    found = parse_checkpoint(note)

    assert (found.origin, found.size) == ("example.com/behind-the-sofa", 20852163)
    assert found.note == note


@pytest.mark.parametrize("url", ["", "w1:9880", "ftp://w1", "http://"])
def test_a_witness_without_a_url_is_refused(witness: Witness, url: str) -> None:
    assert witness_place(f"{witness.key}@http://w1:9880").url == "http://w1:9880"
    with pytest.raises(ValueError, match="KEY@URL"):
        witness_place(f"{witness.key}@{url}")
