"""A restored backup says what was signed, and what was not; and it is a copy unless it was restored
to continue the log."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from audit_kit import RecordedLog
from bus_kit import ask
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.bucket_copy import PUBLIC_KEYS
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.restore import NEVER
from joulie_cli.main import main
from joulie_projections.chain.note import VerifierKey
from joulie_projections.decision_log.heads import Signer, public_key
from joulie_projections.witness.asking import Finding
from joulie_projections.witness.cosigner import witness_of
from joulie_projections.witness.head_keepers import FileKeeper
from joulie_projections.witness.keeping import HeadKeeping
from joulie_projections.witness.policy import WitnessPlace, at_least
from joulie_projections.witness.settings import WitnessSettings
from joulie_projections.witness.submitting import Submitter
from recorded_data import recorded_in

pytestmark = pytest.mark.anyio


class Backup(NamedTuple):
    recorded: RecordedLog
    path: Path
    keys: Path  # `head.pub`, as an auditor has it

    @property
    def key_id(self) -> str:
        return self.recorded.builder.signer.public.first.id


@contextlib.asynccontextmanager
async def backed_up(path: Path, *, rotates: bool = False) -> AsyncGenerator[Backup, None]:
    """Nine entries; with another key in the end, eleven."""
    async with recorded_in(path / "data", path) as recorded:
        made, keys = recorded.builder, path / "known.pub"
        made.signer.publish(keys)
        if rotates:
            made.rotate()
            await made.answer(ask("after"))
            made.sign()
        async with recorded.reading() as (history, facts):
            await Archiver(path / "backup", Segment(), NEVER, made.signer.public).run(
                history, facts
            )
        made.signer.publish(path / "backup" / PUBLIC_KEYS)
        yield Backup(recorded, path / "backup", keys)


async def restored(backup: Backup, to: Path, *words: str) -> int:
    words = ("restore", "--dir", str(backup.path), "--data", str(to), *words)
    return await asyncio.to_thread(main, list(words))


async def test_it_says_what_was_signed_and_by_which_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with backed_up(tmp_path) as backup:
        assert await restored(backup, tmp_path / "new") == 0
        own = capsys.readouterr().out
        assert await restored(backup, tmp_path / "checked", "--key", str(backup.keys)) == 0
        known = capsys.readouterr().out

    covered = "entries 1 to 9, positions 1 to 23."
    assert f"Signed, by the key {backup.key_id} that only the backup itself names: {covered}" in own
    assert "Compare it with a copy of head.pub from elsewhere, or give --key FILE." in own
    assert "NOT signed" not in own + known
    assert f"Signed, by the key {backup.key_id} of {backup.keys}: {covered}" in known
    assert "Compare" not in known
    assert "NOT cosigned: a backup holds no cosignatures." in own


async def test_what_a_key_of_the_auditor_did_not_sign_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with backed_up(tmp_path, rotates=True) as backup:
        code = await restored(backup, tmp_path / "new", "--key", str(backup.keys), "-o", "json")
        found = json.loads(capsys.readouterr().out)
        assert await restored(backup, tmp_path / "text", "--key", str(backup.keys)) == 0

    assert (code, found["entries"], found["signed"]["entries"]) == (0, 11, 9)
    assert "NOT signed: entries 10 to 11." in capsys.readouterr().out


async def test_a_backup_that_another_key_signed_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("true", "forged"):
        (tmp_path / name).mkdir()
    true = Signer.of(tmp_path / "true" / "head.key")
    true.publish(tmp_path / "true.pub")
    async with backed_up(tmp_path / "forged") as backup:
        code = await restored(backup, tmp_path / "new", "--key", str(tmp_path / "true.pub"))
        said = capsys.readouterr().err
        assert not (tmp_path / "new").exists()
        assert await restored(backup, tmp_path / "new") == 0
        unchecked = capsys.readouterr().out

    assert code == 2
    assert "signed none of the 2 heads" in said
    assert "Nothing was restored." in said
    assert true.public.first.id not in unchecked
    assert f"{backup.key_id} that only the backup itself names" in unchecked


def submitted(data: Path, key: VerifierKey) -> list[Finding]:
    """What a projector does that runs there; nothing listens at the address of the witness."""
    settings = WitnessSettings(policy=at_least([WitnessPlace(key, "http://127.0.0.1:1")]))
    submitter = Submitter(data / "joulie.db", settings, lambda: public_key(data / "head.pub"))
    return [answer.finding for answer in submitter.submit()]


async def test_a_copy_asks_no_witness_and_keeps_no_heads_outside_until_it_continues_the_log(
    tmp_path: Path,
) -> None:
    key, kept = witness_of(tmp_path / "witness").key, tmp_path / "kept.jsonl"
    async with backed_up(tmp_path) as backup:
        await restored(backup, tmp_path / "copy")
        await restored(backup, tmp_path / "next", "--continue")
        ring = backup.recorded.builder.signer.public
    with capture_logs() as lines:
        asked_by_copy = submitted(tmp_path / "copy", key)
        asked_by_next = submitted(tmp_path / "next", key)
        HeadKeeping(tmp_path / "copy/joulie.db", FileKeeper(kept), "file", lambda: ring).keep()
        kept_of_copy = kept.exists()
        HeadKeeping(tmp_path / "next/joulie.db", FileKeeper(kept), "file", lambda: ring).keep()

    assert (asked_by_copy, asked_by_next) == ([], [Finding.SILENT])
    assert (kept_of_copy, len(kept.read_text().splitlines())) == (False, 2)
    refused = [line for line in lines if "restored as a copy" in str(line.get("why"))]
    assert [line["event"] for line in refused] == ["not_cosigned", "heads_not_kept"]
