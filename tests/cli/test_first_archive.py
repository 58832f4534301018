"""The archiver of a fresh installation, whose broker starts a little later."""

import argparse
import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from joulie_audit.archive.archiver import ArchiveResult
from joulie_bus.errors import JoulieError
from joulie_cli.log_access import archiving

pytestmark = pytest.mark.anyio
NOTHING = ArchiveResult(parts=0, facts_to=0, log_to=0)


class Archiver(archiving.PeriodicArchiver):
    """Without a broker and a database to look at beside the passes."""

    async def _check_dangers(self) -> None:
        pass


async def test_the_first_pass_is_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`helm test` reports an archiver that fails, and may run at once after `helm install`."""
    answers = ["late", "late", ""]
    pauses: list[float] = []

    async def write(_: bool) -> ArchiveResult:
        if answers.pop(0):
            raise JoulieError("The broker does not answer.")
        return NOTHING

    async def slept(seconds: float) -> None:
        pauses.append(seconds)
        if not answers:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", slept)
    args = argparse.Namespace(every=3600.0, now=False, to=tmp_path)
    with pytest.raises(asyncio.CancelledError):
        await Archiver(args, cast(Any, None), write, None).run()

    soon, later = archiving.FIRST_RETRY_S, archiving.CHECK_INTERVAL_S
    assert pauses == [soon, soon, later]
