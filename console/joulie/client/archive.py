"""Replay of an exported log."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from joulie_audit.replay.replay import ReplayReport


async def replay_archive(path: str | Path, *, sample: int = 0, jobs: int = 1) -> "ReplayReport":
    """Folds all facts of an archive again, and recomputes its decisions and plans.

    Needs neither a cluster nor a broker nor a database. `sample` recomputes that many decisions,
    evenly spread; `jobs` is the number of processes.
    """
    # 60 MB, which no other call of the client needs
    from joulie_audit.replay.archived import replay_alone
    from joulie_audit.replay.replay import Scope

    scope = Scope(sample=sample, jobs=jobs)
    return await asyncio.to_thread(lambda: asyncio.run(replay_alone(Path(path), scope)))
