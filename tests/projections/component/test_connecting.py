"""The user and the patience of the connection of a component."""

from pathlib import Path

import pytest

from joulie_bus.runtime.settings import BusSettings, Source
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_projections.component.connecting import address_for
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.component.wiring import Wiring


@pytest.mark.parametrize(("role", "is_one"), [(Role.AGENT, True), (Role.OPERATOR, False)])
def test_agents_with_a_shared_password_have_the_patience_of_agents(
    tmp_path: Path, role: Role, is_one: bool
) -> None:
    bus = BusSettings(nats_url="nats://broker:4222", nats_user="someone", nats_password="x")
    wires = Wiring(Source.of(), bus, DataDirectory(tmp_path), Subjects("local"))
    assert address_for(wires, role, "n1").is_one_of_many is is_one


def test_a_broker_that_no_setting_names_is_not_blamed_on_one(tmp_path: Path) -> None:
    bus = BusSettings(nats_url="nats://127.0.0.1:4222")
    wires = Wiring(Source.of(), bus, DataDirectory(tmp_path), Subjects("local"))

    advice = address_for(wires, Role.AUDITOR).advice
    assert advice.startswith(f"NATS_URL is not set, and no `joulie up` runs in {tmp_path}")
