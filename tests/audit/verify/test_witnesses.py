"""Witnesses show what database and broker cannot: that both were set back, or forked."""

import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from audit_kit import RecordedLog
from joulie_bus.runtime.settings import HostPort
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.tree import verifier_of
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree
from joulie_projections.testing import tamper
from joulie_projections.witness.asking import Finding, WitnessPlace
from joulie_projections.witness.cosigner import witness_of
from joulie_projections.witness.seen import FILE, Seen
from joulie_projections.witness.server import bound
from joulie_projections.witness.settings import WitnessSettings
from joulie_projections.witness.submitting import Submitter
from recorded_data import copied, grow, recorded_in, replaced, verify

pytestmark = pytest.mark.anyio
UNREACHABLE = "http://127.0.0.1:1"


class Installation(NamedTuple):
    """A data directory with a log of nine entries, and its witnesses: two of three are up."""

    data: Path
    recorded: RecordedLog
    places: tuple[WitnessPlace, ...]

    def submit(self) -> list[Finding]:
        settings = WitnessSettings(witnesses=self.places)
        return [answer.finding for answer in Submitter(self.file, settings).submit()]

    @property
    def file(self) -> Path:
        return self.data / "joulie.db"

    def heads(self) -> Path:
        """The heads that the broker keeps."""
        kept = self.data.parent / "heads.json"
        with History.of(self.file) as history:
            kept.write_bytes(msgspec.json.encode(history.heads()))
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
    assert await found.verify("--quorum", "3") == 1
    assert "2 of 3 witnesses confirm the log, not 3: joulie-witness/c" in capsys.readouterr().out


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

    assert found.submit()[:2] == [Finding.AHEAD, Finding.AHEAD]


async def test_the_cosigned_checkpoint_is_kept_for_proofs(installation: Installation) -> None:
    found = installation
    found.submit()
    with History.of(found.file) as history:
        notes, newest = history.cosigned(), StoredTree.required(history).newest

    assert len(notes) == 2
    assert all(newest.text in note for note in notes)


async def test_a_quorum_without_witnesses_is_an_error(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await installation.verify("--quorum", "2", witnesses=0) == 2
    assert await installation.verify("--quorum", "4") == 2
    assert "--quorum 4 is more than the 3 witnesses" in capsys.readouterr().err


async def test_a_changed_tile_root_and_a_changed_checkpoint_are_flaws(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    found = installation
    note = b"joulie/other\n9\n" + b"A" * 43 + b"=\n\n\xe2\x80\x94 joulie/other AAAAAAAA\n"
    tamper(found.file, "UPDATE tree_head SET note = ? WHERE pos = 9", note)

    assert await found.verify(witnesses=0) == 1
    assert "the checkpoint at entry 9 is not signed by a key" in capsys.readouterr().out
