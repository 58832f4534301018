"""`joulie migrate`: brings the database to this version's schema."""

import argparse

import joulie_migrations
from joulie_cli.wiring import Wiring
from joulie_projections import database

SETTINGS = ()


def run(_: argparse.Namespace, wires: Wiring) -> int:
    wires.data.create()
    engine = database.migrator(wires.data.database)
    try:
        print(f"{wires.data.database} is at schema {joulie_migrations.upgrade(engine)}.")
    finally:
        engine.dispose()
    return 0
