"""The end and the priority of child processes."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from joulie_bus.runtime.child_process import give_way, giving_way, session_of

pytestmark = pytest.mark.anyio

TWO_THREADS = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("here", flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def a_process() -> AsyncGenerator[int, None]:
    """Of two threads, with a session of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TWO_THREADS, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        await process.wait()


def how_nice(pid: int) -> set[int]:
    """Each of its threads."""
    threads = Path(f"/proc/{pid}/task")
    there = [int(each.name) for each in threads.iterdir()] if threads.exists() else [pid]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in there}


async def test_all_threads_of_a_process_get_the_requested_niceness() -> None:
    async with a_process() as pid:
        before = max(how_nice(pid))
        await give_way(pid, 7)
        first = how_nice(pid)
        await give_way(pid, 40)

        assert first == {before + 7}
        assert how_nice(pid) == {19}


async def test_so_is_its_session_where_sessions_share_the_processor() -> None:
    async with a_process() as pid:
        if not session_of(pid).exists():
            pytest.skip("has no such sessions")
        await give_way(pid, 7)

        assert session_of(pid).read_text().strip().endswith(" nice 7")


async def test_a_starting_process_keeps_its_niceness() -> None:
    async with a_process() as pid:
        before = how_nice(pid)
        async with giving_way(pid, 7, after_s=0.3):
            await asyncio.sleep(0.05)
            starting = how_nice(pid)
            await asyncio.sleep(0.5)

        assert starting == before
        assert how_nice(pid) == {max(before) + 7}


async def test_a_process_that_ended_meanwhile_keeps_its_successor_untouched() -> None:
    """Another process may have its id by then."""
    async with a_process() as pid:
        before = how_nice(pid)
        async with giving_way(pid, 7, after_s=0.05):
            pass
        await asyncio.sleep(0.2)

        assert how_nice(pid) == before


async def test_a_refused_write_of_the_niceness_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts ten writes a second from users other than root and refuses the rest."""
    tried: list[str] = []

    def write(_: Path, text: str) -> None:
        tried.append(text)
        if len(tried) < 4:
            raise BlockingIOError

    monkeypatch.setattr(Path, "write_text", write)
    async with a_process() as pid:
        await give_way(pid, 3)

    assert tried == ["3"] * 4
