"""serve the API, the stream of decisions and the web page.

joulie console --data /srv/joulie
"""

import argparse

from joulie_bus.streams.roles import Role
from joulie_console.notify.settings import NotifySettings
from joulie_console.settings import ConsoleSettings
from joulie_extender.gpu.models import aliases_of
from joulie_extender.settings import ScoringSettings
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.opening import await_migration
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.view.viewing import viewing

SETTINGS = (ConsoleSettings, NotifySettings, ScoringSettings, CatalogSettings)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    await_migration(wires)
    return serve_part(wires, "console", _show(wires))


async def _show(wires: Wiring) -> None:
    # Imported here: `joulie up` reads the settings only.
    from joulie_console.api.reports import ReportProgram
    from joulie_console.service import ServiceSettings, StoredData, serve

    settings = wires.source.load(ConsoleSettings)
    notify = wires.source.load(NotifySettings)
    staleness_s = wires.source.load(ScoringSettings).staleness_s
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    report = ReportProgram.at(wires.data.path, wires.source.from_file())
    async with viewing(wires, Role.CONSOLE) as (bus, view):
        await serve(
            bus,
            wires.subjects,
            view,
            StoredData.at(wires.data.database, report),
            ServiceSettings(settings, notify, staleness_s, aliases),
        )
