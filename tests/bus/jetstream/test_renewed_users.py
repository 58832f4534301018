"""A broker's users get the permissions of this version while a component reads."""

import json
import os
import signal
from pathlib import Path

import pytest

from broker_installations import password
from bus_kit import CLUSTER, power, producer, until
from joulie_bus.errors import BrokerRefused
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.accounts import user
from joulie_bus.streams.roles import FOLLOW, Role, inbox
from joulie_bus.streams.subjects import Stream
from nats_trust import serving

pytestmark = pytest.mark.anyio
DIRECT = "$JS.API.DIRECT.GET.*"


def users(*, older: bool) -> str:
    """Older ones read by consumers."""
    made = [user(role, password(role)) for role in Role]
    for each in made:
        if each["user"] == Role.CONSOLE and older:
            allowed = set(each["permissions"]["publish"]) - {DIRECT}
            each["permissions"]["publish"] = [*allowed, *FOLLOW]
    return f"authorization {{ users: {json.dumps(made)} }}"


async def test_a_reader_by_a_consumer_ends_when_only_direct_gets_are_allowed(
    tmp_path: Path,
) -> None:
    """It did not read any more, without end, until its process was started again."""
    store = f'jetstream {{ store_dir: "{tmp_path}", max_file_store: 32GB }}'
    older, newer = (
        f'pid_file: "{tmp_path}/pid"\n{store}\n{users(older=each)}' for each in (True, False)
    )
    says = producer("agent")
    with serving(tmp_path, older) as url:
        admin = await Connection.open(_address(url, Role.ADMIN), "test")
        await ensure(admin, CLUSTER)
        async with (
            JetStreamLog.over(admin) as writer,
            JetStreamLog.open(_address(url, Role.CONSOLE), "test") as bus,
        ):
            async with bus.reading(Stream.TEL, 0) as reader:
                await writer.publish([says.stamp(power("n1", 200))])
                await until(lambda: len(reader.take(1)) == 1)
                config = tmp_path / "nats.conf"
                config.write_text(config.read_text().replace(older, newer))
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)

                with pytest.raises(BrokerRefused, match=r"CONSUMER\.CREATE"):
                    await until(lambda: len(reader.take(1)) > 1)

            async with bus.reading(Stream.TEL, 0) as reader:
                await until(lambda: len(reader.take(1)) == 1)
        await admin.close()


def _address(url: str, role: Role) -> Address:
    return Address(
        url=url,
        user=role,
        password=password(role),
        inbox=inbox(role),
        direct=role is Role.CONSOLE,
    )
