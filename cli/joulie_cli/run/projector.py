"""order events, fold them into the twins, write the decision log.

joulie projector --data /srv/joulie
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def program() -> Program:
    from joulie_audit.access import heads_places
    from joulie_projections import projector_component

    return Program((*projector_component.SETTINGS, *heads_places.SETTINGS), run)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.access.heads_places import keeper_of
    from joulie_projections import projector_component
    from joulie_projections.witness.settings import HeadsSettings

    place = wires.source.load(HeadsSettings).heads_to
    return projector_component.run(wires, None if place is None else keeper_of(place, wires))
