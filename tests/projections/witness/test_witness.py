"""A witness answers as C2SP's tlog-witness describes it."""

import asyncio
import http.client
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from authority import Authority
from http_server import Handler, endless
from http_server import serving as serving_http
from joulie_bus.runtime.settings import HostPort
from joulie_cli.main import main
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
from joulie_projections.witness import asking
from joulie_projections.witness.asking import SKEW_S, Finding, ask_all, seen_by
from joulie_projections.witness.cosigner import Witness, cosigned_by, witness_of
from joulie_projections.witness.policy import WitnessPlace, witness_place
from joulie_projections.witness.seen import FILE, Seen
from joulie_projections.witness.server import MAX_BODY, bound
from joulie_projections.witness.settings import witness_policy

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
def serving(
    tmp_path: Path, witness: Witness, *logs: VerifierKey, tls: ssl.SSLContext | None = None
) -> Generator[int]:
    seen = Seen(tmp_path / "w" / FILE, logs)
    with bound(HostPort("127.0.0.1", 0), witness, seen, tls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def post(port: int, body: bytes, path: str = "/add-checkpoint") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
    assert witness_place(f"{witness.key}@https://w1:9880").url == "https://w1:9880"
    with pytest.raises(ValueError, match="KEY@URL"):
        witness_place(f"{witness.key}@{url}")


@pytest.mark.parametrize("host", ["w1", "10.0.0.7", "[2001:db8::1]", "127.0.0.1.example.com"])
def test_a_witness_beyond_loopback_is_asked_by_tls_or_not_at_all(
    witness: Witness, host: str
) -> None:
    with pytest.raises(ValueError, match="https:// only"):
        witness_place(f"{witness.key}@http://{host}:9880")
    for own in ("127.0.0.1", "[::1]", "localhost"):
        assert witness_place(f"{witness.key}@http://{own}:9880").url


def test_a_witness_that_is_named_twice_is_not_two(witness: Witness) -> None:
    other = VerifierKey("other.example.com", witness.key.kind, witness.key.raw)
    for second in (witness.key, other):
        with pytest.raises(ValueError, match="named twice"):
            witness_policy(f"{witness.key}@https://w1 {second}@https://w2")


def test_a_witness_shows_the_newest_checkpoint_that_the_log_signed(
    tmp_path: Path, witness: Witness, signer: Signer
) -> None:
    with serving(tmp_path, witness, log_key(signer)) as port:
        place = WitnessPlace(witness.key, f"http://127.0.0.1:{port}")
        assert seen_by(place, ORIGIN) is None
        for old, size in ((0, 5), (5, 9)):
            post(port, extending(signer, old, size).body)
        found = seen_by(place, ORIGIN)

        assert seen_by(place, "example.com/another") is None
    assert found is not None
    assert (found.size, found.is_signed_by(log_key(signer))) == (9, True)


async def trickling(request: web.Request) -> web.StreamResponse:
    """A byte now and then, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x")
        await asyncio.sleep(0.05)


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("https://127.0.0.1:1/add-checkpoint")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "what"),
    [(trickling, "did not cosign"), (endless, "no cosignature"), (elsewhere, "answered 307")],
)
async def test_a_hostile_witness_is_silent_and_keeps_nothing_waiting(
    answer: Handler,
    what: str,
    witness: Witness,
    signer: Signer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "WHOLE_S", 1.0)
    async with serving_http(answer) as url:
        place = WitnessPlace(witness.key, url)
        [found] = await asyncio.to_thread(
            ask_all, [place], signed(signer, 5), lambda old, size: consistency(subtree, old, size)
        )

    assert found.finding is Finding.SILENT
    assert what in found.what


@pytest.mark.parametrize(
    ("ago_s", "finding"),
    [
        (0, Finding.COSIGNED),
        (SKEW_S - 60, Finding.COSIGNED),
        (SKEW_S + 60, Finding.SEEN),
        (86_400, Finding.SEEN),
        (-SKEW_S - 60, Finding.SILENT),
    ],
)
def test_only_a_cosignature_since_the_question_is_of_the_newest(
    ago_s: int, finding: Finding, witness: Witness, signer: Signer
) -> None:
    """An older one may be repeated by a host between."""
    checkpoint, now_s = signed(signer, 5), int(time.time())
    line = f"{cosigned_by(witness, checkpoint, now_s - ago_s)}\n".encode()
    found = asking._cosigned(WitnessPlace(witness.key, ""), checkpoint, line, now_s)

    assert found.finding is finding


def test_a_witness_cosigns_by_tls_for_clients_that_trust_its_authority(
    tmp_path: Path, witness: Witness, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.made(tmp_path, "authority")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue(tmp_path, "witness"))

    def proof(old: int, size: int) -> list[bytes]:
        return consistency(subtree, old, size)

    with serving(tmp_path, witness, log_key(signer), tls=tls) as port:
        place = WitnessPlace(witness.key, f"https://127.0.0.1:{port}")
        [stranger] = ask_all([place], signed(signer, 5), proof)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        [trusted] = ask_all([place], signed(signer, 5), proof)

    assert (stranger.finding, trusted.finding) == (Finding.SILENT, Finding.COSIGNED)
    assert "certificate" in stranger.what.lower()


@pytest.mark.parametrize("options", [[], ["--cert", "CERT"], ["--cert", "CERT", "--key", "/none"]])
def test_a_witness_serves_tls_beyond_loopback_or_does_not_start(
    options: list[str], tmp_path: Path, signer: Signer, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, _ = Authority.made(tmp_path, "authority").issue(tmp_path, "witness")
    named = [str(cert) if each == "CERT" else each for each in options]
    words = ["witness", "--state", str(tmp_path / "w"), "--log", str(log_key(signer))]

    assert main([*words, "--listen", "0.0.0.0:0", *named]) == 2
    assert "--cert" in capsys.readouterr().err
