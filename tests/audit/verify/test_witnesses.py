"""Witnesses show what database and broker cannot: that both were set back, or forked."""

import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from audit_kit import RecordedLog
from http_server import serving
from joulie_bus.runtime.settings import HostPort
from joulie_projections.chain.head import encode
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.note import LOG_KEY, VerifierKey
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.tree import verifier_of
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import newest_head
from joulie_projections.witness.asking import Finding
from joulie_projections.witness.cosigner import witness_of
from joulie_projections.witness.policy import WitnessPlace, at_least
from joulie_projections.witness.seen import FILE, Seen
from joulie_projections.witness.server import bound
from joulie_projections.witness.settings import WitnessSettings
from joulie_projections.witness.submitting import Submitter
from projections_kit import tamper
from recorded_data import copied, grow, recorded_in, replaced, verify
from signed_heads import head_at, insert_head

pytestmark = pytest.mark.anyio
UNREACHABLE = "http://127.0.0.1:1"


class Installation(NamedTuple):
    """A data directory with a log of nine entries, and its witnesses: two of three are up."""

    data: Path
    recorded: RecordedLog
    places: tuple[WitnessPlace, ...]

    def submit(self) -> list[Finding]:
        settings = WitnessSettings(policy=at_least(self.places))
        return [answer.finding for answer in Submitter(self.file, settings, self.ring).submit()]

    def ring(self) -> Ring:
        return self.recorded.builder.signer.public

    @property
    def file(self) -> Path:
        return self.data / "joulie.db"

    def heads(self) -> Path:
        """The heads that the broker keeps."""
        kept = self.data.parent / "heads.json"
        with History.of(self.file) as history:
            kept.write_bytes(b"\n".join(map(encode, history.heads())))
        return kept

    async def verify(self, *words: str, witnesses: int = 3) -> int:
        """The exit code of the command."""
        asked = [f"{place.key}@{place.url}" for place in self.places[:witnesses]]
        named = [word for place in asked for word in ("--witness", place)]
        heads = str(self.heads())
        return await verify("--data", str(self.data), "--heads", heads, *named, *words)


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncGenerator[Installation, None]:
    data = tmp_path / "data"
    async with recorded_in(data, tmp_path) as recorded:
        signer = recorded.builder.signer
        signer.publish(data / "head.pub")
        with contextlib.ExitStack() as stack:
            places = [stack.enter_context(witness(tmp_path / name, signer)) for name in "ab"]
            away = WitnessPlace(witness_of(tmp_path / "c").key, UNREACHABLE)
            yield Installation(data, recorded, (*places, away))


@contextlib.contextmanager
def witness(directory: Path, signer: Signer) -> Generator[WitnessPlace]:
    own = witness_of(directory)
    seen = Seen(directory / FILE, [verifier_of(signer.public, signer.public.newest)])
    with bound(HostPort("127.0.0.1", 0), own, seen) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield WitnessPlace(own.key, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


async def test_two_of_three_witnesses_confirm_a_log(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    assert found.submit() == [Finding.COSIGNED, Finding.COSIGNED, Finding.SILENT]
    await grow(found.recorded, "later")

    assert await found.verify() == 0
    assert "2 of 3 witnesses confirm its 11 entries as the newest" in capsys.readouterr().out
    assert await found.verify("--quorum", "3") == 3
    said = capsys.readouterr().out
    assert "every hash, link and signature is valid" in said
    assert "UNCONFIRMED: 2 of 3 witnesses confirm the log; demanded are 3 of 3." in said
    assert "joulie-witness/c did not cosign" in said


async def test_a_database_and_a_broker_that_were_set_back_together_are_named(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    copy = copied(found.recorded, tmp_path / "copy.db")
    await grow(found.recorded, "later")
    found.submit()
    replaced(found.data, copy)

    assert await found.verify(witnesses=0) == 0
    assert "No witness was asked" in capsys.readouterr().out
    assert await found.verify() == 1
    what = "the log was set back: witness joulie-witness/a saw 11 entries, and the log has 9"
    assert f"CORRUPTED: {what}." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pods", "what"),
    [
        pytest.param(["x"], "saw 11 entries with another root, which this", id="as long"),
        pytest.param(["x", "y"], "saw 11 entries, which this log does not contain", id="longer"),
    ],
)
async def test_a_fork_that_the_same_key_signed_is_named(
    installation: Installation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pods: list[str],
    what: str,
) -> None:
    found = installation
    await grow(found.recorded, "later")
    found.submit()
    async with recorded_in(tmp_path / "forked", tmp_path) as forked:
        await grow(forked, *pods)
        replaced(found.data, copied(forked, tmp_path / "fork.db"))

    assert await found.verify(witnesses=0) == 0
    capsys.readouterr()
    assert await found.verify() == 1
    assert f"the log was forked: witness joulie-witness/a {what}" in capsys.readouterr().out


async def test_a_projector_learns_that_its_database_was_set_back(
    installation: Installation, tmp_path: Path
) -> None:
    found = installation
    copy = copied(found.recorded, tmp_path / "copy.db")
    await grow(found.recorded, "later")
    found.submit()
    replaced(found.data, copy)

    assert found.submit()[:2] == [Finding.ACCUSED, Finding.ACCUSED]


async def test_the_cosigned_checkpoint_is_kept_for_proofs(installation: Installation) -> None:
    found = installation
    found.submit()
    with History.of(found.file) as history:
        notes, newest = history.cosigned(), newest_head(history, found.ring())

    assert len(notes) == 2
    assert all(newest.checkpoint.text in note for note in notes)


async def test_a_quorum_without_witnesses_is_an_error(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await installation.verify("--quorum", "2", witnesses=0) == 2
    assert await installation.verify("--quorum", "4") == 2
    assert "--quorum 4 is more than the 3 witnesses" in capsys.readouterr().err


async def test_a_changed_tile_is_a_flaw_and_a_head_that_no_key_signed_a_note(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    insert_head(found.file, head_at(Signer.of(tmp_path / "thief.key"), 9, bytes(32)))

    assert await found.verify(witnesses=0) == 0
    note = "ignored 1 row of the table head that no key of this log signed"
    assert note in capsys.readouterr().out
    assert found.submit()[:2] == [Finding.COSIGNED, Finding.COSIGNED]
    await grow(found.recorded, *map(str, range(130)))
    tamper(found.file, "UPDATE tree_tile SET root = ?", bytes(32))
    assert await found.verify(witnesses=0) == 1
    said = capsys.readouterr().out
    assert "the tile of the tree up to entry 256 does not fit the entries" in said


class Liar(NamedTuple):
    """Says that it saw another tree, and proves nothing; `shown` is what it shows of it."""

    status: int
    size: int
    shown: bytes = b""

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.Response(body=self.shown, status=200 if self.shown else 404)
        headers = {"Content-Type": "text/x.tlog.size"}
        return web.Response(body=b"%d\n" % self.size, status=self.status, headers=headers)


LIARS = [
    pytest.param(Liar(409, 99_999), id="a larger tree"),
    pytest.param(Liar(409, 0), id="none"),
    pytest.param(Liar(422, 5), id="another tree"),
    pytest.param(Liar(409, 99_999, b"x\n5\nAAAA\n\n"), id="with no checkpoint"),
]


@pytest.mark.parametrize("liar", LIARS)
async def test_a_witness_that_accuses_the_log_without_a_proof_makes_it_not_corrupted(
    liar: Liar, installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    found.submit()
    async with serving(liar.answer) as url:
        lying = WitnessPlace(witness_of(tmp_path / "liar").key, url)
        beside = found._replace(places=(*found.places[:2], lying))
        alone = found._replace(places=(found.places[0], lying))

        assert await beside.verify() == 0
        confirmed = capsys.readouterr().out
        assert await alone.verify() == 3
        unconfirmed = capsys.readouterr().out

    assert "2 of 3 witnesses confirm its 9 entries as the newest" in confirmed
    assert "every hash, link and signature is valid" in unconfirmed
    assert "UNCONFIRMED: 1 of 2 witnesses confirm the log; demanded are 2 of 2." in unconfirmed
    assert "CORRUPTED" not in confirmed + unconfirmed


async def test_a_checkpoint_of_another_key_proves_nothing_against_the_log(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    forged = head_at(Signer.of(tmp_path / "thief.key"), 99_999, bytes(32))
    origin = found.ring().origin
    shown = forged.note.replace(forged.checkpoint.origin, origin)
    liar = Liar(409, 99_999, shown.encode())
    async with serving(liar.answer) as url:
        lying = WitnessPlace(witness_of(tmp_path / "liar").key, url)

        assert await found._replace(places=(lying,)).verify(witnesses=1) == 3
    assert "it shows no signature of the log" in capsys.readouterr().out


async def test_the_quorum_of_a_policy_counts(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    found.submit()
    lines = [
        f"witness {name} {each.key} {each.url}"
        for name, each in zip("abc", found.places, strict=True)
    ]
    met, missed, other = tmp_path / "met", tmp_path / "missed", tmp_path / "other"
    met.write_text("\n".join([*lines, "group two 2 a b c", "quorum two", ""]))
    missed.write_text("\n".join([*lines, "quorum c", ""]))
    log = VerifierKey("joulie/other", LOG_KEY, bytes(32))
    other.write_text("\n".join([f"log {log}", *lines, "quorum a", ""]))

    assert await found.verify("--policy", str(met), witnesses=0) == 0
    assert await found.verify("--policy", str(missed), witnesses=0) == 3
    assert "demanded are c." in capsys.readouterr().out
    assert await found.verify("--policy", str(other), witnesses=0) == 2
    assert "names no key of this log" in capsys.readouterr().err
    assert await found.verify("--policy", str(met)) == 2
    twice = f"{found.places[0].key}@{found.places[0].url}"
    assert await found.verify("--witness", twice, witnesses=1) == 2
    assert "named twice" in capsys.readouterr().err
