"""The example of docs/subscribe.py, run as it stands there."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from joulie_bus.broker.embedded import Embedded
from joulie_bus.streams.roles import Role
from joulie_bus.testing import ask, hardware, node_seen, power
from joulie_console.testing import Stage

pytestmark = pytest.mark.anyio
Staging = Callable[..., AbstractAsyncContextManager[Stage]]
EXAMPLE = Path(__file__).parents[3] / "docs" / "subscribe.py"


async def test_a_program_hears_scores_straight_from_the_broker(
    spare: Embedded, stage_of: Staging, tmp_path: Path
) -> None:
    address = spare.address_of(Role.VIEWER)
    password = tmp_path / "viewer"
    password.write_text(address.password)
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 144))
        example = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), address.url, str(password), "test"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert example.stdout is not None
        async with asyncio.timeout(20):
            assert await example.stdout.readline() == b"listening\n"
            await stage.place(ask("p1", performance=True))
            said = await example.stdout.readline()
        example.kill()
        await example.wait()

    assert said == b"team/p1 -> n1 68.3\n"


def test_the_example_is_short_enough_to_be_read() -> None:
    code = EXAMPLE.read_text().partition('"""\n\n')[2].splitlines()

    assert len([line for line in code if line.strip()]) <= 22
