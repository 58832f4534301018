"""Makes a vital task of another process raise, whenever a file asks for it.

The process is one of `joulie_forked`, and `ATTEMPT` is replaced in it.
"""

import asyncio
import os
import time
from pathlib import Path

from joulie_bus.runtime.vital_tasks import OnFailure, VitalTask, Work, _restarts

ATTEMPT = "joulie_bus.runtime.vital_tasks._attempt"
PLACE = "JOULIE_FAILING_TASKS"  # the directory of these files
POLL_S = 0.02


class MadeToFail(Exception):
    pass


async def attempt(task: VitalTask, work: Work) -> None:
    """Runs the work until the file of the task appears, and raises then.

    The reader of a task that is restarted is of the same kind as one whose end ends the component,
    and is restarted with its task; the file is not for it.
    """
    if task.on_failure is OnFailure.ENDS and _restarts.get():
        await work()
        return
    place = Path(os.environ[PLACE])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_run(work))
        (place / f"{task}.runs").touch()
        file = place / f"{task}.fails"
        while not file.exists():
            await asyncio.sleep(POLL_S)
        file.unlink(missing_ok=True)
        (place / f"{task}.failed").write_text(str(time.time()))
        raise MadeToFail(str(task))


async def _run(work: Work) -> None:
    await work()


class FailingTasks:
    """The files, as the test sees them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()

    def running(self) -> set[str]:
        return {file.stem for file in self.place.glob("*.runs")}

    def forget(self) -> None:
        for file in self.place.iterdir():
            file.unlink()

    def fail(self, task: VitalTask) -> None:
        (self.place / f"{task}.fails").touch()

    def failed_at(self, task: VitalTask) -> float:
        return float((self.place / f"{task}.failed").read_text())
