"""Folds an archive, decides all of it again, and prints what came out: for other interpreters."""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

from joulie_audit.archive.parts import Archive, ArchivedFacts
from joulie_audit.replay.fold import Past, rows_of
from joulie_audit.replay.recorded import Queue, answers_of
from joulie_audit.testing import Gone, restored
from joulie_bus.events import codec
from joulie_extender.decide.decide import again
from joulie_projections.history.history import History
from joulie_projections.state.rows import digests_of, state_digest


async def fingerprint(archive: Path, file: Path) -> str:
    past, digest = Past(), hashlib.sha256()
    facts = ArchivedFacts(Archive.of(archive), Gone())
    with History.of(file) as history:
        logged = Queue(answers_of(history))
        for manifest in history.manifests():
            past.skip(await facts.of(manifest))
            for _, answer in logged.up_to(manifest.p_to):
                assert answer.weights is not None
                decided = again(answer.decision, past.twin_columns(), answer.weights)
                digest.update(codec.encode(decided))
    digest.update(state_digest(digests_of(rows_of(past.cluster_state))))
    return digest.hexdigest()


def main() -> None:
    archive = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "joulie.db"
        restored(archive, file)
        print(asyncio.run(fingerprint(archive, file)))


if __name__ == "__main__":
    main()
