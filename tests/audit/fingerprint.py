"""Folds an archive, recomputes every decision and prints a digest; runs under any interpreter."""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

from audit_kit import NoFacts, restore_into
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.recompute.fold import FoldedState, rows_of
from joulie_audit.replay.recorded import PositionQueue, answers_of
from joulie_bus.events import codec
from joulie_extender.decide.decide import again
from joulie_projections.history.history import History
from joulie_projections.state.rows import digests_of, state_digest


async def fingerprint(archive: Path, file: Path) -> str:
    folded, digest = FoldedState(), hashlib.sha256()
    facts = ArchivedFacts(Archive.of(archive), NoFacts())
    with History.of(file) as history:
        logged = PositionQueue(answers_of(history))
        for manifest in history.manifests():
            folded.skip(await facts.of(manifest))
            for _, answer in logged.up_to(manifest.p_to):
                assert answer.weights is not None
                decided = again(answer.decision, folded.twin_columns(), answer.weights)
                digest.update(codec.encode(decided))
    digest.update(state_digest(digests_of(rows_of(folded.cluster_state))))
    return digest.hexdigest()


def main() -> None:
    archive = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "joulie.db"
        restore_into(archive, file)
        print(asyncio.run(fingerprint(archive, file)))


if __name__ == "__main__":
    main()
